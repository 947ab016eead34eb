//! Every command block of README and docs, run as printed and compared with what stands there.
//!
//! Each block runs in a [`Scene`], which is what its reader has before him; the blocks of one scene run one after another in one
//! terminal, as they are read. Skipped, with a word, where there is no kubectl; blocks with helm, where there is no helm. What
//! is not run at all is listed in [`unrun`] with the reason.

mod scenes;
mod terminal;
mod unrun;

use std::{fs, path::PathBuf, time::Instant};

use anyhow::ensure;
use fleet_tests::{
    Kubectl,
    console::{self, Block},
    repository, tools,
};

use scenes::Scene;
use terminal::Terminal;

/// Who sees so many mistakes does not need more of them.
const MOST_WRONG: usize = 5;

fn all_blocks() -> anyhow::Result<Vec<Block>> {
    let mut all = Vec::new();
    for (page, text) in console::pages(&repository())? {
        all.extend(console::blocks(&page, &text)?);
    }
    Ok(all)
}

#[test]
fn what_is_not_run_is_listed_with_a_reason() -> anyhow::Result<()> {
    let blocks = all_blocks()?;
    unrun::check_list(&blocks)?;
    let unused = Scene::unused(&blocks);
    ensure!(unused.is_empty(), "{}", unused.join("\n"));
    Ok(())
}

#[test]
fn what_is_not_run_names_commands_and_files_that_exist() -> anyhow::Result<()> {
    unrun::check_blocks(&all_blocks()?)
}

#[test]
fn commands_in_sentences_exist() -> anyhow::Result<()> {
    unrun::check_sentences(&console::pages(&repository())?)
}

/// A first page that is longer is not read to its end.
#[test]
fn the_readme_fits_on_a_few_screens() -> anyhow::Result<()> {
    const MOST_LINES: usize = 120;
    let lines = fs::read_to_string(repository().join("README.md"))?.lines().count();
    ensure!(lines <= MOST_LINES, "README.md: found {lines} lines; allowed: {MOST_LINES}");
    Ok(())
}

/// The helm of `FLEET_HELM`, else of PATH.
fn helm() -> anyhow::Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os("FLEET_HELM").filter(|named| !named.is_empty()) {
        return Ok(Some(PathBuf::from(named)));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("helm")).find(|file| file.is_file());
    if found.is_none() {
        tools::missing(
            "helm is not on the PATH, and FLEET_HELM does not name one; blocks with helm are left out",
        )?;
    }
    Ok(found)
}

/// Runs the blocks of a scene. `FLEET_DOCS_PAGE` chooses pages; the first one of the scene, on which others depend, is always
/// run.
async fn follow(scene: Scene) -> anyhow::Result<()> {
    let Some(kubectl) = Kubectl::find() else {
        return tools::missing("no kubectl on PATH, and FLEET_KUBECTL does not name one");
    };
    let helm = helm()?;
    let mut blocks = all_blocks()?;
    blocks.retain(|block| block.is_run && Scene::of(block) == scene && (helm.is_some() || !uses_helm(block)));
    let first = blocks.first().map(|block| block.page.clone());
    if let Ok(only) = std::env::var("FLEET_DOCS_PAGE") {
        blocks.retain(|block| block.page.contains(&only) || Some(&block.page) == first.as_ref());
    }
    let programs = [("kubectl", Some(&kubectl)), ("helm", helm.as_ref())];
    let programs: Vec<_> =
        programs.into_iter().filter_map(|(name, file)| Some((name, file?.as_path()))).collect();
    let mut terminal = Terminal::open(&programs)?;
    let stage = scene.set(&terminal).await?;
    let mut wrong = Vec::new();
    for blocks in blocks.chunk_by(|one, next| one.page == next.page) {
        let began = Instant::now();
        terminal.begin_page()?;
        let found = run(&mut terminal, blocks, MOST_WRONG - wrong.len()).await;
        wrong.extend(found);
        eprintln!("{}: {:.1} s", blocks[0].page, began.elapsed().as_secs_f64());
        if wrong.len() >= MOST_WRONG {
            break;
        }
    }
    if let Err(error) = terminal.close().await {
        wrong.push(format!("{error:#}"));
    }
    stage.strike().await;
    ensure!(wrong.is_empty(), "{} commands print something else:\n\n{}", wrong.len(), wrong.join("\n\n"));
    Ok(())
}

/// Runs the blocks of one page; returns what went wrong. The rest of a block depends on what went wrong before.
async fn run(terminal: &mut Terminal, blocks: &[Block], most: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    for block in blocks {
        for step in &block.steps {
            if let Err(error) = terminal.step(step).await {
                wrong.push(format!("{}:{}: {error:#}", block.page, step.line));
                break;
            }
        }
        if wrong.len() >= most {
            break;
        }
    }
    if let Err(error) = terminal.end_page().await {
        wrong.push(format!("{}: {error:#}", blocks[0].page));
    }
    wrong
}

fn uses_helm(block: &Block) -> bool {
    block.steps.iter().any(|step| step.command.split_whitespace().any(|word| word == "helm"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_docs_say() -> anyhow::Result<()> {
    follow(Scene::Laptop).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_docs_say_in_a_lab() -> anyhow::Result<()> {
    follow(Scene::Lab).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_readme_says_of_two_clusters() -> anyhow::Result<()> {
    follow(Scene::FirstClusters).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_docs_say_of_two_clusters() -> anyhow::Result<()> {
    follow(Scene::Clusters).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_docs_say_of_a_dead_cluster() -> anyhow::Result<()> {
    follow(Scene::DeadCluster).await
}
