//! Reads the text of `/metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// Type and names of labels by name of a metric; counters with their `_total`, histograms without `le`.
pub type Families = BTreeMap<String, (String, BTreeSet<String>)>;

/// Of OpenMetrics text, or of Prometheus' older one.
pub fn families(text: &str) -> Families {
    let mut all = Families::new();
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" && !name.ends_with("_total") { "_total" } else { "" };
            kinds.insert(name.to_owned(), kind.to_owned());
            all.entry(format!("{name}{total}")).or_insert((kind.to_owned(), BTreeSet::new()));
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (name, labels) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.rsplit_once('}').map_or("", |(labels, _)| labels)),
            None => (line.split(' ').next().unwrap_or(line), ""),
        };
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let family =
            histogram.filter(|base| kinds.get(*base).is_some_and(|kind| kind == "histogram")).unwrap_or(name);
        let names = names_of(labels);
        if let Some((_, known)) = all.get_mut(family) {
            known.extend(names.into_iter().filter(|label| label != "le"));
        }
    }
    all
}

/// `a="x",b="y, z"`: a, b.
fn names_of(labels: &str) -> Vec<String> {
    let (mut names, mut name, mut is_value, mut is_escaped) = (Vec::new(), String::new(), false, false);
    for c in labels.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_value => is_escaped = true,
            '"' => is_value = !is_value,
            _ if is_value => {}
            '=' => names.push(std::mem::take(&mut name)),
            ',' => {}
            c => name.push(c),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_and_labels_are_read() {
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum{q=\"x\"} 1\n\
                    a_seconds_bucket{q=\"x, \\\"y={z}\",le=\"+Inf\"} 1\n# TYPE b counter\nb_total 0\n# TYPE c gauge\nc{d=\"}\"} 1\n# EOF\n";
        let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let expected = [
            ("a_seconds", ("histogram", labels(&["q"]))),
            ("b_total", ("counter", labels(&[]))),
            ("c", ("gauge", labels(&["d"]))),
        ];
        let expected: Families = expected
            .into_iter()
            .map(|(name, (kind, labels))| (name.to_owned(), (kind.to_owned(), labels)))
            .collect();
        assert_eq!(families(text), expected);
    }
}
