//! HiveD's lab through the portal: two teams in two browsers, an administrator in a third. The eight job files are pasted as
//! they are; what each shows is what the lab's table expects. By commands the same is in `vc_lab`.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use fleet_api::yaml;
use fleet_controller::{RUN_LOG_SIZE, RunLog};
use fleet_kubesim::RunTime;
use fleet_portal::{
    board::Board,
    time::Time,
    web::{Web, serve},
};
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    browser::{Browser, Scheme},
    objects::{self, CELL_CONFIGURATION},
    repository, wait_for,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::portal::{sign_in, until_state};

const WITHIN: Duration = Duration::from_secs(60);
const RBAC: &str = "rbac.authorization.k8s.io";
/// Namespaces, and an account in each. The last has nothing to do with the lab.
const TEAMS: [(&str, &str); 2] = [("team-a", "alice"), ("team-b", "bob")];
const OUTSIDER: (&str, &str) = ("team-c", "carol");
const ADMIN: (&str, &str) = ("team-c", "root");
const TWO: &str = "two-virtual-clusters.yaml";
const ONE: &str = "one-virtual-cluster.yaml";
const CAROL: &str = "hostname-carol";
const DAN: &str = "hostname-dan";

fn example(name: &str) -> anyhow::Result<String> {
    let file = repository().join("examples/hived").join(name);
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// Two nodes of one GPU each, one virtual cluster for each, and the controller's log of it all.
struct Lab {
    fleet: TestFleet,
    url: String,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Lab {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fleet-lab-").tempdir()?;
        let log = folder.path().join("run.jsonl");
        let mut spec = FleetSpec::of("lab 2x1").nodes(&[CAROL, DAN]).run_time(RunTime::Forever);
        spec.controller.run_log = Some(RunLog::keep(&log, RUN_LOG_SIZE)?);
        let fleet = spec.start().await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (board, stop) = (Arc::new(Board::default()), CancellationToken::new());
        tokio::spawn(board.clone().follow(fleet.hub(), stop.clone()));
        let web = Web::new(board, fleet.hub(), "the hub".to_owned(), "default".to_owned());
        let web = web.recorded_by(Arc::new(Time::following(&log)));
        tokio::spawn(serve(listener, Arc::new(web), stop.clone().cancelled_owned()));
        let lab = Self { fleet, url, stop, _folder: folder };
        lab.admit().await?;
        Ok(lab)
    }

    /// Teams with their accounts and policies, and an administrator.
    async fn admit(&self) -> anyhow::Result<()> {
        let pai: Value = yaml::read(&example("policy.yaml")?)?;
        let mut forms = pai.clone();
        forms["metadata"]["name"] = "forms".into();
        forms["spec"]["resourceSelectors"] = json!([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}]);
        for (team, user) in TEAMS {
            self.fleet.hub_with_roles().tenant(team).await?;
            self.account((team, user)).await?;
            self.bind("RoleBinding", (team, user), "fleet-tenant").await?;
            self.bind("ClusterRoleBinding", (team, user), "fleet-virtual-cluster-reader").await?;
            for mut policy in [pai.clone(), forms.clone()] {
                policy["metadata"]["namespace"] = team.into();
                objects::create(&self.fleet.hub(), &policy).await?;
            }
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OUTSIDER.0}});
        objects::create(&self.fleet.hub(), &namespace).await?;
        self.account(OUTSIDER).await?;
        self.account(ADMIN).await?;
        self.bind("ClusterRoleBinding", ADMIN, "cluster-admin").await
    }

    async fn account(&self, (namespace, name): (&str, &str)) -> anyhow::Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
        objects::create(&self.fleet.hub(), &account).await?;
        Ok(())
    }

    async fn bind(&self, kind: &str, (namespace, name): (&str, &str), role: &str) -> anyhow::Result<()> {
        let mut binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": format!("{name}-{role}")},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
        if kind == "RoleBinding" {
            binding["metadata"]["namespace"] = namespace.into();
        }
        objects::create(&self.fleet.hub(), &binding).await?;
        Ok(())
    }

    /// A browser in which somebody has signed in.
    async fn desk(&self, (namespace, user): (&'static str, &str)) -> anyhow::Result<Desk<'_>> {
        let token = self.fleet.hub_with_roles().token(namespace, user).await?;
        let browser = Browser::start(Scheme::Light).await?;
        sign_in(&browser, &self.url, &token).await?;
        Ok(Desk { lab: self, browser, namespace })
    }
}

/// One user at his browser.
struct Desk<'l> {
    lab: &'l Lab,
    browser: Browser,
    namespace: &'static str,
}

impl Desk<'_> {
    async fn open(&self, path: &str) -> anyhow::Result<()> {
        self.browser.open(&format!("{}{path}", self.lab.url)).await
    }

    /// Pastes a file of the lab into the editor, with other words where the experiment says so; the path of the job's page.
    async fn submit(&self, number: usize, words: &[(&str, &str)]) -> anyhow::Result<String> {
        let mut text = example(&format!("jobs/job-config-{number}.yaml"))?;
        for (from, to) in words {
            anyhow::ensure!(text.contains(from), "{from:?} in {text}");
            text = text.replace(from, to);
        }
        self.open("/submit?mode=yaml").await?;
        self.browser.write("#yaml", &text).await?;
        self.browser.write("#namespace", self.namespace).await?;
        self.created().await
    }

    /// A job of one pod by the form.
    async fn submit_single(&self, name: &str, vc: &str, class: &str) -> anyhow::Result<String> {
        self.open("/submit").await?;
        for (field, text) in [
            ("#name", name),
            ("#namespace", self.namespace),
            ("#virtual_cluster", vc),
            ("#role0-image", "registry.example.com/training/pytorch:v1"),
        ] {
            self.browser.write(field, text).await?;
        }
        self.browser.find("#class").await?.select_by_value(class).await?;
        self.created().await
    }

    async fn created(&self) -> anyhow::Result<String> {
        self.browser.click("button[value=create]").await?;
        self.browser.until_it_says("Its life").await?;
        Ok(self.browser.client.current_url().await?.path().to_owned())
    }

    async fn runs(&self, job: &str) -> anyhow::Result<()> {
        self.open(job).await?;
        until_state(&self.browser, "Running").await
    }

    async fn waits(&self, job: &str, why: &str) -> anyhow::Result<()> {
        self.open(job).await?;
        until_state(&self.browser, "Waiting").await?;
        self.browser.until_it_says(why).await
    }

    async fn stop(&self, job: &str) -> anyhow::Result<()> {
        self.open(job).await?;
        self.browser.follow("#stop").await?;
        until_state(&self.browser, "Stopped").await
    }

    /// What the open page of virtual clusters says of one: amounts by the heads of their columns.
    async fn row(&self, vc: &str) -> anyhow::Result<Value> {
        let script = format!(
            "const table = document.querySelector('main table'); if (!table) return {{}}; \
             const heads = [...table.querySelectorAll('thead th')].map((cell) => cell.innerText.trim()); \
             const row = [...table.querySelectorAll('tbody tr')].find((row) => row.cells[0].innerText.trim() === '{vc}'); \
             return Object.fromEntries(row ? [...row.cells].map((cell, at) => [heads[at], cell.innerText.trim()]) : [])"
        );
        self.browser.run(&script).await
    }

    /// Waits until it says this.
    async fn sees(&self, vc: &str, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
        self.open("/virtual-clusters").await?;
        wait_for(&format!("virtual cluster {vc} to have {wanted:?}"), WITHIN, async || {
            let row = self.row(vc).await?;
            let is = wanted.iter().all(|(column, value)| row[*column] == *value);
            Ok(Polled::when(is, || row.to_string()))
        })
        .await
    }

    /// Waits until the tree of cells has exactly these jobs on these nodes.
    async fn places(&self, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
        self.open("/virtual-clusters").await?;
        // Rows of nodes and of what is in them. A pool that nobody is promised and one job uses is one row: there its type counts.
        let script = "let node = ''; const found = []; \
            const tables = document.querySelectorAll('main table'); \
            const rows = [...tables[tables.length - 1].querySelectorAll('tbody tr')]; \
            const isTop = (row) => !row || row.cells[0].classList.contains('depth-0'); \
            rows.forEach((row, at) => { \
                const name = row.cells[0].innerText.match(/hostname-\\w+/)?.[0]; \
                if (name) node = name; \
                else if (isTop(row)) node = isTop(rows[at + 1]) ? row.cells[1].innerText : ''; \
                const jobs = node ? row.cells[row.cells.length - 1].querySelectorAll('div') : []; \
                for (const job of jobs) found.push([node, job.innerText]); \
            }); return found";
        wait_for(&format!("jobs on nodes: {wanted:?}"), WITHIN, async || {
            let found = self.browser.run(script).await?;
            let pairs: Vec<(String, String)> = serde_json::from_value(found.clone())?;
            let is = |node: &str, job: &str| pairs.iter().any(|(on, text)| on == node && text.contains(job));
            let all = pairs.len() == wanted.len() && wanted.iter().all(|(node, job)| is(node, job));
            Ok(Polled::when(all, || found.to_string()))
        })
        .await
    }

    /// Looks at what would change, then applies it, and waits until both nodes are good cells.
    async fn configure(&self, file: &str, says: &[&str]) -> anyhow::Result<()> {
        self.open("/virtual-clusters/configuration").await?;
        self.browser.write("#yaml", &example(file)?).await?;
        self.browser.follow("button[value=preview]").await?;
        self.browser.until_it_says("What it would change").await?;
        for words in says {
            self.browser.until_it_says(words).await?;
        }
        self.browser.follow("button[value=apply]").await?;
        let fleet = &self.lab.fleet;
        fleet
            .wait_for("both nodes to be good cells", async || {
                let found = fleet.get(CELL_CONFIGURATION, "", "cells").await?.unwrap_or_default();
                let status = &found["status"];
                let is_good = status["nodes"] == 2 && status["badNodes"].as_array().is_none_or(Vec::is_empty);
                Ok(Polled::when(is_good, || status.to_string()))
            })
            .await
    }

    async fn now_ms(&self) -> anyhow::Result<i64> {
        self.browser.run("return Date.now()").await?.as_i64().context("a time")
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.browser.client.clone().close().await?)
    }
}

/// Whether the test makes sense: over a socket the hub's client shows its own credential.
fn is_in_process(lab: &Lab) -> bool {
    let is = lab.fleet.kubeconfig().is_none();
    if !is {
        eprintln!("skipped: over a socket the hub's client shows its own credential");
    }
    is
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_teams_share_two_virtual_clusters() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    if !is_in_process(&lab) {
        return Ok(());
    }
    let admin = lab.desk(ADMIN).await?;
    admin.configure(TWO, &["Virtual clusters that come: default, vc1"]).await?;
    let (alice, bob) = (lab.desk(TEAMS[0]).await?, lab.desk(TEAMS[1]).await?);

    // A single job by the form has the promised cell; nobody else's virtual cluster has changed.
    let single = alice.submit_single("single", "vc1", "prod").await?;
    alice.runs(&single).await?;
    admin.places(&[(DAN, "single")]).await?;
    for desk in [&alice, &bob] {
        desk.sees("vc1", &[("GPUs", "1/1"), ("Running", "1"), ("Waiting", "0")]).await?;
        desk.sees("default", &[("GPUs", "0/1"), ("Running", "0")]).await?;
    }
    alice.stop(&single).await?;

    // A virtual cluster is safe: guaranteed jobs do not borrow, and run one after another.
    let of_alice = alice.submit(0, &[]).await?;
    alice.runs(&of_alice).await?;
    let of_bob = bob.submit(0, &[]).await?;
    bob.waits(&of_bob, "insufficient capacity in VC vc1").await?;
    admin.places(&[(DAN, "job-config-0")]).await?;
    bob.sees("vc1", &[("GPUs", "1/1"), ("Running", "1"), ("Waiting", "1")]).await?;
    let then = recorded_by_now(&bob).await?;
    // Each sees his own job alone.
    for (desk, other) in [(&alice, "team-b/"), (&bob, "team-a/")] {
        for (path, says) in [("/", "1 waiting, 1 running"), ("/jobs", "job-config-0")] {
            desk.open(path).await?;
            desk.browser.until_it_says(says).await?;
            let text = desk.browser.text().await?;
            anyhow::ensure!(!text.contains(other), "{path}: {text}");
        }
    }
    // What one gives back the other gets, and his page shows it by itself.
    bob.open(&of_bob).await?;
    bob.browser.run("window.marker = 'never reloaded'").await?;
    alice.stop(&of_alice).await?;
    until_state(&bob.browser, "Running").await?;
    anyhow::ensure!(bob.browser.run("return window.marker").await? == "never reloaded");
    bob.stop(&of_bob).await?;

    priorities(&alice, &bob, &admin).await?;
    opportunistic(&alice, &bob, &admin).await?;
    the_past(&lab, (&alice, &of_alice), (&bob, &of_bob), then).await?;
    for desk in [alice, bob, admin] {
        desk.close().await?;
    }
    Ok(())
}

/// A higher class preempts, and the victim runs again from zero.
async fn priorities(alice: &Desk<'_>, bob: &Desk<'_>, admin: &Desk<'_>) -> anyhow::Result<()> {
    let low = alice.submit(1, &[]).await?;
    alice.runs(&low).await?;
    let high = bob.submit(2, &[]).await?;
    bob.runs(&high).await?;
    alice.waits(&low, "insufficient capacity in VC vc1").await?;
    alice.browser.until_it_says("Preempted").await?;
    admin.places(&[(DAN, "job-config-2")]).await?;
    bob.stop(&high).await?;
    alice.runs(&low).await?;
    alice.browser.until_it_says("run 2 in lab").await?;
    admin.places(&[(DAN, "job-config-1")]).await?;
    alice.stop(&low).await
}

/// Opportunistic jobs use what is idle, and leave it to its owner.
async fn opportunistic(alice: &Desk<'_>, bob: &Desk<'_>, admin: &Desk<'_>) -> anyhow::Result<()> {
    let prod = alice.submit(3, &[]).await?;
    alice.runs(&prod).await?;
    let oppo = bob.submit(4, &[]).await?;
    bob.runs(&oppo).await?;
    admin.places(&[("GPU-C-NODE-POOL", "job-config-4"), (DAN, "job-config-3")]).await?;
    bob.sees("default", &[("Lent", "1"), ("Borrowed", "0")]).await?;
    bob.sees("vc1", &[("Lent", "0"), ("Borrowed", "1")]).await?;
    let owner = alice.submit(5, &[("prod", "test"), ("job-config-5", "owner")]).await?;
    alice.runs(&owner).await?;
    bob.waits(&oppo, "insufficient capacity in the physical cluster").await?;
    admin.places(&[(CAROL, "owner"), (DAN, "job-config-3")]).await?;
    alice.stop(&prod).await?;
    bob.runs(&oppo).await?;
    admin.places(&[(CAROL, "owner"), ("GPU-D-NODE-POOL", "job-config-4")]).await?;
    alice.stop(&owner).await?;
    bob.stop(&oppo).await
}

/// An instant at which the log has what the page of virtual clusters shows now: it is written a little later.
async fn recorded_by_now(desk: &Desk<'_>) -> anyhow::Result<i64> {
    wait_for("the log to have the use of vc1", WITHIN, async || {
        let at_ms = desk.now_ms().await?;
        desk.open(&format!("/virtual-clusters?at={at_ms}")).await?;
        let row = desk.row("vc1").await?;
        let is = row["GPUs"] == "1/1" && row["Waiting"] == "1" && row["Running"] == "1";
        Ok(if is { Polled::Yes(at_ms) } else { Polled::NotYet(row.to_string()) })
    })
    .await
}

/// Everybody sees of a recording what he may see now: his own jobs, and those of nobody else.
async fn the_past(
    lab: &Lab,
    (alice, of_alice): (&Desk<'_>, &str),
    (bob, of_bob): (&Desk<'_>, &str),
    at_ms: i64,
) -> anyhow::Result<()> {
    for (desk, own, other, state) in
        [(alice, of_alice, of_bob, "Running"), (bob, of_bob, of_alice, "Waiting")]
    {
        desk.open(&format!("{own}?at={at_ms}")).await?;
        desk.browser.until_it_says("Recording of run.jsonl").await?;
        until_state(&desk.browser, state).await?;
        desk.open(&format!("{other}?at={at_ms}")).await?;
        desk.browser.until_it_says("you may not see it").await?;
        let other = other.split('/').nth(2).context("a namespace")?;
        for path in ["/", "/jobs"] {
            desk.open(&format!("{path}?at={at_ms}")).await?;
            desk.browser.until_it_says(&format!("{}/", desk.namespace)).await?;
            let text = desk.browser.text().await?;
            anyhow::ensure!(!text.contains(other), "{path}: {text}");
        }
        desk.open(&format!("/virtual-clusters?at={at_ms}")).await?;
        desk.browser.until_it_says("vc1").await?;
    }
    let outsider = lab.desk(OUTSIDER).await?;
    for path in ["/", "/jobs", "/queues", "/clusters", "/virtual-clusters"] {
        for at in [String::new(), format!("?at={at_ms}")] {
            outsider.open(&format!("{path}{at}")).await?;
            outsider.browser.find("main h1").await?;
            let text = outsider.browser.text().await?;
            for name in ["job-config", "team-a", "team-b", "vc1", CAROL] {
                anyhow::ensure!(!text.contains(name), "{path}{at} says {name}: {text}");
            }
        }
    }
    outsider.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_teams_share_one_virtual_cluster() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    if !is_in_process(&lab) {
        return Ok(());
    }
    let admin = lab.desk(ADMIN).await?;
    admin.configure(TWO, &["Virtual clusters that come: default, vc1"]).await?;
    let (alice, bob) = (lab.desk(TEAMS[0]).await?, lab.desk(TEAMS[1]).await?);
    // To the other configuration while a job runs: the difference names it, and it goes on.
    let prod = alice.submit(3, &[]).await?;
    alice.runs(&prod).await?;
    admin.configure(ONE, &["Virtual clusters that go: vc1", "job-config-3", "These jobs run on"]).await?;
    alice.runs(&prod).await?;
    alice.stop(&prod).await?;

    // A gang takes nothing until it has all.
    let first = alice.submit(5, &[]).await?;
    alice.runs(&first).await?;
    admin.places(&[(CAROL, "job-config-5")]).await?;
    let gang = bob.submit(6, &[]).await?;
    bob.waits(&gang, "2 cells of type GPU asked for, 1 free").await?;
    admin.places(&[(CAROL, "job-config-5")]).await?;
    bob.sees("default", &[("GPUs", "1/2"), ("Waiting", "1"), ("Running", "1")]).await?;
    alice.stop(&first).await?;
    bob.runs(&gang).await?;
    admin.places(&[(CAROL, "job-config-6"), (DAN, "job-config-6")]).await?;
    bob.sees("default", &[("GPUs", "2/2"), ("Waiting", "0"), ("Running", "1")]).await?;
    bob.stop(&gang).await?;

    // An incremental job starts with what there is.
    let first = bob.submit(5, &[]).await?;
    bob.runs(&first).await?;
    let pair = alice.submit(7, &[]).await?;
    admin.places(&[(CAROL, "job-config-5"), (DAN, "job-config-7")]).await?;
    alice.runs(&pair).await?;
    bob.stop(&first).await?;
    admin.places(&[(CAROL, "job-config-7"), (DAN, "job-config-7")]).await?;
    alice.stop(&pair).await?;

    // More than the virtual cluster has, all at once: refused where it is written.
    alice.open("/submit?mode=yaml").await?;
    let wide = example("jobs/job-config-6.yaml")?.replace("instances: 2", "instances: 4");
    alice.browser.write("#yaml", &wide).await?;
    alice.browser.write("#namespace", alice.namespace).await?;
    alice.browser.click("button[value=create]").await?;
    alice.browser.until_it_says("found 4 SKUs that start together; allowed: at most 2 SKUs").await?;
    alice.browser.find("#yaml[aria-invalid=true]").await?;
    for desk in [alice, bob, admin] {
        desk.close().await?;
    }
    Ok(())
}
