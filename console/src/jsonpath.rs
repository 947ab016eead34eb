//! Templates of `-o jsonpath`, `-o custom-columns` and `--sort-by`, as in kubectl: text with paths in braces,
//! `{range PATH}..{end}`, quoted strings. The paths themselves are evaluated by the standard. Pure.

use anyhow::{Context, bail};
use jsonpath_rust::JsonPath;
use serde_json::Value;

/// One piece of a template.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Path(String),
    Range(String, Vec<Piece>),
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// # Errors
    /// The mistake in the template.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut rest = text;
        let pieces = pieces(&mut rest, Inside::Nothing).with_context(|| format!("jsonpath {text:?}"))?;
        Ok(Self(pieces))
    }

    /// Renders a value.
    pub fn print(&self, value: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        print(&self.0, value, &mut text)?;
        Ok(text)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Nothing,
    Range,
}

fn pieces(rest: &mut &str, inside: Inside) -> anyhow::Result<Vec<Piece>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let Some(open) = rest.find('{') else {
            found.push(Piece::Text(std::mem::take(rest).to_string()));
            break;
        };
        if open > 0 {
            found.push(Piece::Text(rest[..open].to_string()));
        }
        let close = closing(&rest[open..]).context("found { without }; allowed: {PATH}")?;
        let block = rest[open + 1..open + close].trim().to_string();
        *rest = &rest[open + close + 1..];
        if block == "end" {
            if inside == Inside::Nothing {
                bail!("found {{end}} without {{range}}");
            }
            return Ok(found);
        }
        match block.strip_prefix("range ") {
            Some(path) => found.push(Piece::Range(standard(path.trim()), pieces(rest, Inside::Range)?)),
            None => found.extend(block_pieces(&block)?),
        }
    }
    if inside == Inside::Range {
        bail!("found {{range}} without {{end}}");
    }
    Ok(found)
}

/// The end of the block that opens at the start; braces in quotes do not count.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices().skip(1) {
        match (quote, letter) {
            (None, '}') => return Some(at),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

/// A block is a quoted string, or a sequence of paths.
fn block_pieces(block: &str) -> anyhow::Result<Vec<Piece>> {
    for quote in ['"', '\''] {
        if let Some(text) = block.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Ok(vec![Piece::Text(unescape(text))]);
        }
    }
    if block.is_empty() {
        bail!("found {{}}; allowed: {{PATH}}");
    }
    Ok(vec![Piece::Path(standard(block))])
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Converts a Kubernetes path to the standard form: `.a.b\.c` to `$.a['b.c']`.
fn standard(path: &str) -> String {
    let path = path.trim();
    let path = path.strip_prefix('@').or_else(|| path.strip_prefix('$')).unwrap_or(path);
    let dotted =
        if path.is_empty() || path.starts_with(['.', '[']) { path.to_string() } else { format!(".{path}") };
    let mut out = String::from("$");
    let mut rest = dotted.as_str();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            out.push_str("..");
            rest = after;
            let name = name_length(rest);
            out.push_str(&rest[..name]);
            rest = &rest[name..];
        } else if let Some(after) = rest.strip_prefix('.') {
            let length = name_length(after);
            let name = after[..length].replace('\\', "");
            match name.as_str() {
                "" => {}
                "*" => out.push_str("[*]"),
                name => out.push_str(&format!("['{name}']")),
            }
            rest = &after[length..];
        } else if rest.starts_with('[') {
            let end = bracket(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        } else {
            out.push_str(rest);
            break;
        }
    }
    out
}

/// Length up to the next dot or bracket that is not escaped.
fn name_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return at,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Position after the bracket that closes the one at the start.
fn bracket(text: &str) -> usize {
    let (mut depth, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn print(pieces: &[Piece], here: &Value, text: &mut String) -> anyhow::Result<()> {
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Path(path) => {
                let found: Vec<String> = query(here, path)?.into_iter().map(written).collect();
                text.push_str(&found.join(" "));
            }
            Piece::Range(path, inner) => {
                for item in query(here, path)? {
                    print(inner, item, text)?;
                }
            }
        }
    }
    Ok(())
}

fn query<'v>(value: &'v Value, path: &str) -> anyhow::Result<Vec<&'v Value>> {
    value.query(path).map_err(|error| anyhow::anyhow!("jsonpath {path:?}: {error}"))
}

/// Strings unchanged, other values as JSON.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// All values at a path such as `.metadata.name` or `{.metadata.name}`.
///
/// # Errors
/// The path is invalid.
pub fn values<'v>(value: &'v Value, path: &str) -> anyhow::Result<Vec<&'v Value>> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
    query(value, &standard(path))
}

/// `NAME:.metadata.name,..` as headers and paths.
///
/// # Errors
/// A column without a path.
pub fn columns(spec: &str) -> anyhow::Result<Vec<(String, String)>> {
    let column = |text: &str| match text.split_once(':') {
        Some((header, path)) if !header.is_empty() && !path.is_empty() => {
            Ok((header.to_string(), path.to_string()))
        }
        _ => bail!("custom-columns: found {text:?}; allowed: HEADER:PATH,.."),
    };
    spec.split(',').map(column).collect()
}

/// A cell of a custom column: the values at its path, `<none>` without any.
///
/// # Errors
/// The path is invalid.
pub fn cell(value: &Value, path: &str) -> anyhow::Result<String> {
    let found: Vec<String> =
        values(value, path)?.into_iter().filter(|value| !value.is_null()).map(written).collect();
    Ok(if found.is_empty() { "<none>".to_string() } else { found.join(",") })
}

/// The sort key of objects: numbers before strings, quantities and times by value.
pub fn sort_key(value: &Value, path: &str) -> anyhow::Result<(u8, i64, String)> {
    let found = values(value, path)?;
    Ok(match found.first() {
        None | Some(Value::Null) => (0, 0, String::new()),
        Some(Value::Number(number)) => (1, number.as_f64().map_or(0, |n| (n * 1000.0) as i64), String::new()),
        Some(Value::String(text)) => match fleet_resources::quantity::parse("cpu", text) {
            Ok(amount) => (1, amount, String::new()),
            Err(_) => (2, 0, text.clone()),
        },
        Some(other) => (3, 0, other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_print_as_kubectl_does() {
        let list = json!({"items": [
            {"metadata": {"name": "a", "labels": {"fleet.dev/queue": "x"}}, "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}},
            {"metadata": {"name": "b"}, "spec": {"n": 3}}]});
        let check = |template: &str, expected: &str| {
            let text = Template::read(template).and_then(|template| template.print(&list));
            assert_eq!(text.expect(template), expected, "{template}");
        };
        check("{.items[*].metadata.name}", "a b");
        check("{.items[0].metadata.name}{\"\\n\"}", "a\n");
        check("{range .items[*]}{.metadata.name}{'\\t'}{.spec.n}{'\\n'}{end}", "a\t\nb\t3\n");
        check("{.items[0].metadata.labels.fleet\\.dev/queue}", "x");
        check("{.items[0].status.conditions[?(@.type==\"Ready\")].status}", "True");
        check("{.items[-1].metadata.name}", "b");
        check("{$.items[1].spec}", "{\"n\":3}");
        check("names: {.items[*]['metadata'].name}!", "names: a b!");
        check("{.items[0].nothing}", "");
        for broken in ["{.a", "{range .items[*]}", "{end}", "{}"] {
            assert!(Template::read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn columns_and_order() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"priority": 5, "clusters": [{"name": "x"}, {"name": "y"}]}});
        let found =
            columns("NAME:.metadata.name,ON:.spec.clusters[*].name,NO:{.spec.nothing}").expect("columns");
        let cells: Vec<String> = found.iter().map(|(_, path)| cell(&object, path).expect("a path")).collect();
        assert_eq!(cells, ["a", "x,y", "<none>"]);
        assert!(columns("NAME").is_err());
        assert!(sort_key(&json!({"n": 9}), ".n").unwrap() < sort_key(&json!({"n": 10}), ".n").unwrap());
        assert!(sort_key(&json!({"n": "900m"}), ".n").unwrap() < sort_key(&json!({"n": "2"}), ".n").unwrap());
        assert!(sort_key(&json!({}), ".n").unwrap() < sort_key(&json!({"n": "a"}), "{.n}").unwrap());
    }
}
