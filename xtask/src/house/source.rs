//! Reads the sources of a crate: its files, functions, and which module uses which.
//!
//! A path counts for the module that defines its name: re-exports (`pub use`) are followed. Test code does not
//! count. Macros are read as far as their tokens are paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, ImplItemFn, Item, ItemExternCrate, ItemFn, ItemMacro, ItemMod, ItemUse, Macro, UseTree,
    Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::graph::Uses;

/// Files of which nothing counts but their size.
const TEST_FILES: &[&str] = &["tests.rs", "tests_real.rs"];

pub struct Room {
    pub folder: String,
    pub files: Vec<File>,
    pub uses: Uses,
    /// First names of the paths outside tests: crates, among others.
    pub roots: BTreeSet<String>,
    /// Identifiers of all sources.
    pub test_words: BTreeSet<String>,
}

pub struct File {
    /// From the root of the workspace.
    pub path: String,
    pub lines: usize,
    /// Of tests, examples or benches: its lines are none of the room's.
    pub is_test: bool,
    /// None of files beside `src/`.
    pub functions: Vec<Function>,
}

pub struct Function {
    pub name: String,
    pub lines: usize,
    /// A comment stands on the first line of its body.
    pub says_why: bool,
}

/// Paths that a module names, and names that it passes on.
#[derive(Default)]
struct Module {
    paths: Vec<Vec<String>>,
    passes_on: BTreeMap<String, Vec<String>>,
    passes_all_of: Vec<Vec<String>>,
}

impl Room {
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(root: &Path, folder: &str) -> anyhow::Result<Self> {
        let mut room = Self {
            folder: folder.to_string(),
            files: Vec::new(),
            uses: Uses::new(),
            roots: BTreeSet::new(),
            test_words: BTreeSet::new(),
        };
        let mut modules = BTreeMap::new();
        let src = root.join(folder).join("src");
        room.read_folder(root, &src, &mut Vec::new(), &mut modules)?;
        for more in ["tests", "examples", "benches"] {
            room.read_beside(root, &root.join(folder).join(more))?;
        }
        room.uses = uses(&modules);
        Ok(room)
    }

    fn read_folder(
        &mut self,
        root: &Path,
        folder: &Path,
        above: &mut Vec<String>,
        modules: &mut BTreeMap<Vec<String>, Module>,
    ) -> anyhow::Result<()> {
        let mut entries: Vec<_> = std::fs::read_dir(folder)
            .with_context(|| folder.display().to_string())?
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                above.push(name);
                self.read_folder(root, &path, above, modules)?;
                above.pop();
            } else if let Some(stem) = name.strip_suffix(".rs") {
                let text = std::fs::read_to_string(&path)?;
                let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                let parsed = syn::parse_file(&text).with_context(|| shown.clone())?;
                let is_test = TEST_FILES.contains(&name.as_str()) || above.iter().any(|name| name == "tests");
                let mut own = above.clone();
                if !["lib", "main", "mod"].contains(&stem) {
                    own.push(stem.to_string());
                }
                let mut reader = Reader::new(&text);
                reader.visit_file(&parsed);
                collect_words(text.parse().unwrap_or_default(), &mut self.test_words);
                let lines = text.lines().count();
                let functions = std::mem::take(&mut reader.functions);
                self.files.push(File { path: shown, lines, is_test, functions });
                if !is_test {
                    let module: &mut Module = modules.entry(own).or_default();
                    module.paths.extend(reader.module.paths.iter().cloned());
                    module.passes_on.extend(reader.module.passes_on.clone());
                    module.passes_all_of.extend(reader.module.passes_all_of.iter().cloned());
                    self.roots.extend(reader.roots());
                }
            }
        }
        Ok(())
    }

    /// Files beside `src/`, of which nothing counts but their size and their words.
    fn read_beside(&mut self, root: &Path, folder: &Path) -> anyhow::Result<()> {
        if !folder.is_dir() {
            return Ok(());
        }
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.read_beside(root, &path)?;
            } else if path.extension().is_some_and(|end| end == "rs") {
                let lines = self.read_words_of(&path)?;
                let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                self.files.push(File { path, lines, is_test: true, functions: Vec::new() });
            }
        }
        Ok(())
    }

    /// Of a file, and of those that it takes in by `#[path = "…"]`: they may be another room's.
    /// Returns the lines of the file itself.
    fn read_words_of(&mut self, file: &Path) -> anyhow::Result<usize> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        collect_words(text.parse().unwrap_or_default(), &mut self.test_words);
        for taken in text.lines().filter_map(taken_in) {
            self.read_words_of(&file.with_file_name(taken))?;
        }
        Ok(text.lines().count())
    }
}

/// The file of another place that this line takes in as a module.
fn taken_in(line: &str) -> Option<&str> {
    line.strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

/// Which module uses which: each path, put to the module that defines what it names.
fn uses(modules: &BTreeMap<Vec<String>, Module>) -> Uses {
    let mut uses = Uses::new();
    let shown = |module: &[String]| if module.is_empty() { "(root)".to_string() } else { module.join("::") };
    for (from, module) in modules {
        let used = uses.entry(shown(from)).or_default();
        for path in &module.paths {
            let Some(absolute) = absolute(modules, from, path) else { continue };
            let to = definition(modules, absolute, 0);
            if to != *from {
                used.insert(shown(&to));
            }
        }
    }
    uses
}

/// A path from the root of the crate; `None`: it leads elsewhere.
fn absolute(
    modules: &BTreeMap<Vec<String>, Module>,
    from: &[String],
    path: &[String],
) -> Option<Vec<String>> {
    let first = path.first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from.split_last()?.1.to_vec(),
        child => {
            let mut inner = from.to_vec();
            inner.push(child.to_string());
            return modules.contains_key(&inner).then(|| [inner, path[1..].to_vec()].concat());
        }
    };
    let mut rest = &path[1..];
    while let Some(("super", further)) = rest.split_first().map(|(head, tail)| (head.as_str(), tail)) {
        base.pop();
        rest = further;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module that defines what a path from the root names.
fn definition(modules: &BTreeMap<Vec<String>, Module>, path: Vec<String>, depth: usize) -> Vec<String> {
    let known = (0..=path.len()).rev().find(|end| modules.contains_key(&path[..*end])).unwrap_or(0);
    let (module, rest) = path.split_at(known);
    let Some(name) = rest.first().filter(|_| depth < 8) else { return module.to_vec() };
    let Some(body) = modules.get(module) else { return module.to_vec() };
    let passed = body.passes_on.get(name).and_then(|to| absolute(modules, module, to));
    match passed {
        Some(passed) => definition(modules, [passed, rest[1..].to_vec()].concat(), depth + 1),
        None => module.to_vec(),
    }
}

struct Reader<'t> {
    text: Vec<&'t str>,
    module: Module,
    functions: Vec<Function>,
    /// Crates that are used without a path.
    crates: BTreeSet<String>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text: text.lines().collect(),
            module: Module::default(),
            functions: Vec::new(),
            crates: BTreeSet::new(),
        }
    }

    /// A name alone may be a variable; a crate is the first name of a path, or is named by `use` or `extern crate`.
    fn roots(self) -> BTreeSet<String> {
        let Module { paths, passes_on, passes_all_of } = self.module;
        let paths = paths.into_iter().filter(|path| path.len() > 1);
        let all = paths.chain(passes_on.into_values()).chain(passes_all_of);
        all.filter_map(|path| path.into_iter().next()).chain(self.crates).collect()
    }

    fn function(&mut self, name: &Ident, whole: proc_macro2::Span, body: proc_macro2::Span) {
        let lines = whole.end().line + 1 - whole.start().line;
        let first = self.text.get(body.start().line).map_or("", |line| line.trim());
        self.functions.push(Function { name: name.to_string(), lines, says_why: first.starts_with("//") });
    }

    fn take_use(&mut self, tree: &UseTree, before: &mut Vec<String>, passes_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_use(&path.tree, before, passes_on);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.take_use(tree, before, passes_on);
                }
            }
            UseTree::Glob(_) if passes_on => self.module.passes_all_of.push(before.clone()),
            UseTree::Glob(_) => self.module.paths.push(before.clone()),
            UseTree::Name(name) => {
                self.take_name(name.ident.to_string(), &name.ident.to_string(), before, passes_on)
            }
            UseTree::Rename(name) => {
                self.take_name(name.ident.to_string(), &name.rename.to_string(), before, passes_on);
            }
        }
    }

    fn take_name(&mut self, name: String, known_as: &str, before: &[String], passes_on: bool) {
        let mut path = before.to_vec();
        if before.is_empty() {
            self.crates.insert(name.clone());
        }
        if name != "self" {
            path.push(name);
        }
        if passes_on {
            self.module.passes_on.insert(known_as.to_string(), path);
        } else {
            self.module.paths.push(path);
        }
    }

    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut is_member = false;
        for token in tokens {
            let after_dot = std::mem::replace(&mut is_member, is_dot(&token));
            match token {
                // A field or a method, whatever module has its name.
                TokenTree::Ident(_) if after_dot => {}
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.module.paths.push(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.module.paths.push(std::mem::take(&mut path));
                    self.take_tokens(group.stream());
                }
                _ => self.module.paths.push(std::mem::take(&mut path)),
            }
        }
        self.module.paths.push(path);
    }
}

fn is_dot(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '.')
}

fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(words.insert(ident.to_string())),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            _ => {}
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// The lines of a source that are in no item for tests; the others are empty.
///
/// # Errors
/// A source that cannot be parsed.
pub fn without_tests(text: &str) -> syn::Result<Vec<&str>> {
    struct Tests(Vec<(usize, usize)>);
    impl<'a> Visit<'a> for Tests {
        fn visit_item(&mut self, item: &'a Item) {
            match is_for_tests(attributes(item)) {
                true => self.0.push((item.span().start().line, item.span().end().line)),
                false => visit::visit_item(self, item),
            }
        }

        fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
            if is_for_tests(&item.attrs) {
                self.0.push((item.span().start().line, item.span().end().line));
            }
        }
    }
    let mut tests = Tests(Vec::new());
    tests.visit_file(&syn::parse_file(text)?);
    let is_test = |number: usize| tests.0.iter().any(|(first, last)| (*first..=*last).contains(&number));
    Ok(text.lines().enumerate().map(|(at, line)| if is_test(at + 1) { "" } else { line }).collect())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(ItemMod { attrs, .. })
        | Item::Fn(ItemFn { attrs, .. })
        | Item::Use(ItemUse { attrs, .. })
        | Item::Macro(ItemMacro { attrs, .. }) => attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        self.take_use(&item.tree, &mut Vec::new(), passes_on);
        visit::visit_item_use(self, item);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.module.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Who may see an item is no use of them: `pub(super)` names the parent and needs nothing of it.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_macro(&mut self, call: &'a Macro) {
        self.take_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Ok(list) = attribute.meta.require_list() {
            self.take_tokens(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_item_extern_crate(&mut self, item: &'a ItemExternCrate) {
        self.crates.insert(item.ident.to_string());
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function(&item.sig.ident, item.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig.ident, item.span(), item.block.span());
            visit::visit_impl_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(text: &str) -> Module {
        let mut reader = Reader::new(text);
        reader.visit_file(&syn::parse_file(text).expect("parses"));
        reader.module
    }

    #[test]
    fn a_path_counts_for_the_module_that_defines_what_it_names() {
        let path =
            |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
        let modules: BTreeMap<Vec<String>, Module> = BTreeMap::from([
            (path(""), module("mod a; mod b; pub use a::deep::Thing;")),
            (path("a"), module("pub mod deep;")),
            (path("a::deep"), module("pub struct Thing; fn f() { super::super::b::g() }")),
            (
                path("b"),
                module("use crate::Thing; #[cfg(test)] mod tests { use crate::a::X; } pub fn g() {}"),
            ),
        ]);
        let found = uses(&modules);
        let of = |name: &str| found[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of("b"), ["a::deep"]);
        assert_eq!(of("a::deep"), ["b"]);
        assert!(of("(root)").is_empty() && of("a").is_empty());
    }

    #[test]
    fn a_variable_is_no_crate() {
        let mut reader = Reader::new("");
        let text =
            "use a; use b::{c, d}; extern crate e; fn f(bytes: u8) { g::h!(bytes, i::j); bytes; self.k.l() }";
        reader.visit_file(&syn::parse_file(text).expect("parses"));
        let all: Vec<String> = reader.roots().into_iter().collect();
        assert_eq!(all, ["a", "b", "e", "g", "i"]);
    }

    #[test]
    fn what_follows_a_module_of_tests_is_code() {
        let text =
            "#[cfg(test)]\nmod tests;\nfn a() {}\nimpl A {\n    #[cfg(test)]\n    fn b() {\n    }\n}\n";
        let lines = without_tests(text).expect("parses");
        assert_eq!(lines, ["", "", "fn a() {}", "impl A {", "", "", "", "}"]);
    }

    #[test]
    fn who_may_see_an_item_and_what_a_field_is_called_are_no_uses() {
        let module = module("pub(super) fn f() { select! { a = self.b.c() => d::e() } }");
        let found: Vec<String> = module.paths.iter().map(|path| path.join("::")).collect();
        assert!(found.contains(&"d::e".to_string()), "{found:?}");
        for other in ["super", "b", "c"] {
            assert!(!found.contains(&other.to_string()), "{other} in {found:?}");
        }
    }

    #[test]
    fn a_function_says_why_it_is_long_on_its_first_line() {
        let text = "fn short() {}\nfn long() {\n    // One table.\n    let a = 1;\n}\n";
        let mut reader = Reader::new(text);
        reader.visit_file(&syn::parse_file(text).expect("parses"));
        let found: Vec<_> = reader.functions.iter().map(|f| (f.name.as_str(), f.lines, f.says_why)).collect();
        assert_eq!(found, [("short", 1, false), ("long", 4, true)]);
    }
}
