//! Known measures beyond their limit. Each may only shrink; one that is within its limit again is removed from the
//! file.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};

use super::Measure;

pub struct Debt {
    known: BTreeMap<String, usize>,
}

impl Debt {
    /// Reads lines of `<kind> <name> <measure>`; what follows `#` is a comment.
    ///
    /// # Errors
    /// A file that cannot be read, or a line of another form.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut known = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let entry = line.rsplit_once(' ').and_then(|(what, measure)| Some((what, measure.parse().ok()?)));
            let Some((what, measure)) = entry else {
                bail!("xtask/debt.txt:{}: found {line:?}; allowed: a kind, a name and a number", number + 1);
            };
            known.insert(what.trim().to_string(), measure);
        }
        Ok(Self { known })
    }

    /// What is beyond its limit and not known, or has grown, or is known and paid.
    pub fn judge(&self, measured: &[Measure]) -> Vec<String> {
        let mut largest: BTreeMap<&str, &Measure> = BTreeMap::new();
        for measure in measured {
            let known = largest.entry(&measure.what).or_insert(measure);
            if measure.found > known.found {
                *known = measure;
            }
        }
        let mut broken = Vec::new();
        for (what, measure) in &largest {
            let limit = self.known.get(*what).copied().unwrap_or(measure.allowed);
            if measure.found > limit {
                let Measure { found, unit, about, .. } = measure;
                let about = if about.is_empty() { String::new() } else { format!(" ({about})") };
                broken.push(format!("{what}: found {found} {unit}, allowed: {limit}{about}"));
            }
        }
        let paid = self.known.keys().filter(|what| !largest.contains_key(what.as_str()));
        broken.extend(
            paid.map(|what| format!("xtask/debt.txt: {what} is within its limit; take the line out")),
        );
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(what: &str, found: usize) -> Measure {
        Measure { what: what.to_string(), found, allowed: 10, unit: "lines", about: String::new() }
    }

    #[test]
    fn a_debt_may_shrink_and_not_grow_and_goes_when_it_is_paid() {
        let debt = Debt::parse("# known\nfile a.rs 20\nfile b.rs 20 # soon\n").expect("reads");
        assert_eq!(debt.judge(&[measure("file a.rs", 20), measure("file b.rs", 11)]), Vec::<String>::new());
        let broken = debt.judge(&[measure("file a.rs", 21), measure("file c.rs", 11)]);
        assert_eq!(
            broken,
            [
                "file a.rs: found 21 lines, allowed: 20",
                "file c.rs: found 11 lines, allowed: 10",
                "xtask/debt.txt: file b.rs is within its limit; take the line out",
            ]
        );
        assert!(Debt::parse("file a.rs many").is_err());
    }
}
