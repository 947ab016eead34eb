//! Parses what a user requests: `KIND`, `KIND,KIND`, `KIND NAME..`, `KIND/NAME..`. Pure.

use anyhow::bail;

/// One kind, by the user's word, and the requested names; no names mean all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub kind: String,
    pub names: Vec<String>,
}

/// # Errors
/// Words that do not go together.
pub fn parse(words: &[String]) -> anyhow::Result<Vec<Query>> {
    let Some((first, rest)) = words.split_first() else {
        bail!("found nothing to get; allowed: KIND, KIND NAME or KIND/NAME");
    };
    if words.iter().any(|word| word.contains('/')) {
        let mut queries: Vec<Query> = Vec::new();
        for word in words {
            let Some((kind, name)) =
                word.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
            else {
                bail!("found {word:?} beside names with a kind; allowed: KIND/NAME for each");
            };
            match queries.iter_mut().find(|query| query.kind == kind) {
                Some(query) => query.names.push(name.to_string()),
                None => queries.push(Query { kind: kind.to_string(), names: vec![name.to_string()] }),
            }
        }
        return Ok(queries);
    }
    let kinds: Vec<&str> = first.split(',').map(str::trim).filter(|kind| !kind.is_empty()).collect();
    if kinds.is_empty() {
        bail!("found {first:?}; allowed: a kind such as pods");
    }
    Ok(kinds.into_iter().map(|kind| Query { kind: kind.to_string(), names: rest.to_vec() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_queries() {
        let check = |words: &[&str], expect: Option<&str>| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            let found = parse(&words).ok().map(|queries| {
                let all: Vec<String> =
                    queries.iter().map(|query| format!("{}:{}", query.kind, query.names.join("+"))).collect();
                all.join(" ")
            });
            assert_eq!(found.as_deref(), expect, "{words:?}");
        };
        check(&["pod"], Some("pod:"));
        check(&["pod", "a", "b"], Some("pod:a+b"));
        check(&["pod,svc"], Some("pod: svc:"));
        check(&["pod/a", "svc/b", "pod/c"], Some("pod:a+c svc:b"));
        check(&["pod/a", "b"], None);
        check(&["pod/"], None);
        check(&[","], None);
        check(&[], None);
    }
}
