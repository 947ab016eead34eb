//! A bar of one resource: used, guaranteed and borrowed amounts, and the limit.

use schemars::JsonSchema;
use serde::Serialize;

use crate::amounts;

/// Lengths are thousandths of the bar, so that they add up without floating point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bar {
    pub resource: String,
    pub label: String,
    pub used: String,
    pub min: String,
    /// `unlimited` if there is no limit.
    pub max: String,
    /// Used above min; empty for none.
    pub borrowed: String,
    /// Of min, used by others; empty for none.
    pub lent: String,
    /// Used within min.
    pub own_length: i64,
    pub borrowed_length: i64,
    pub lent_length: i64,
    /// Where min ends.
    pub min_mark: i64,
    /// The same as one sentence.
    pub text: String,
}

const FULL: i128 = 1000;

/// `min` of `None`: nothing is guaranteed or borrowed, as for a cluster or the number of jobs.
pub fn bar(resource: &str, used: i64, min: Option<i64>, max: Option<i64>, lent: i64) -> Bar {
    let bound = max.filter(|max| !amounts::is_unlimited(resource, *max));
    let guaranteed = min.unwrap_or(0).max(0);
    let borrowed = if min.is_some() { (used - guaranteed).max(0) } else { 0 };
    let scale = bound.unwrap_or(0).max(used).max(guaranteed).max(1);
    let length = |amount: i64| (i128::from(amount.max(0)) * FULL / i128::from(scale)) as i64;
    let short = |amount: i64| amounts::short(resource, amount);
    let some = |amount: i64| if amount > 0 { short(amount) } else { String::new() };
    let label = amounts::label(resource);
    let max_text = bound.map_or_else(|| "unlimited".to_owned(), short);
    let mut text = match bound {
        Some(bound) => format!("{} of {} {label} used", short(used), short(bound)),
        None => format!("{} {label} used", short(used)),
    };
    if guaranteed > 0 {
        text.push_str(&format!(", {} guaranteed", short(guaranteed)));
    }
    if borrowed > 0 {
        text.push_str(&format!(", {} borrowed", short(borrowed)));
    }
    if lent > 0 {
        text.push_str(&format!(", {} lent", short(lent)));
    }
    Bar {
        resource: resource.to_owned(),
        label: label.to_owned(),
        used: short(used),
        min: short(guaranteed),
        max: max_text,
        borrowed: some(borrowed),
        lent: some(lent),
        own_length: length(used - borrowed),
        borrowed_length: length(borrowed),
        lent_length: length(lent),
        min_mark: length(guaranteed),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_the_same_in_lengths_and_in_words() {
        let check = |used, min, max, lent, lengths: (i64, i64, i64, i64), text: &str| {
            let bar = bar(amounts::GPU, used, min, max, lent);
            assert_eq!((bar.own_length, bar.borrowed_length, bar.lent_length, bar.min_mark), lengths);
            assert_eq!(bar.text, text);
        };
        check(12, Some(8), Some(16), 0, (500, 250, 0, 500), "12 of 16 gpu used, 8 guaranteed, 4 borrowed");
        check(2, Some(8), Some(16), 3, (125, 0, 187, 500), "2 of 16 gpu used, 8 guaranteed, 3 lent");
        check(0, None, Some(0), 0, (0, 0, 0, 0), "0 of 0 gpu used");
        check(3, Some(0), None, 0, (0, 1000, 0, 0), "3 gpu used, 3 borrowed");
        check(3, None, Some(i64::MAX), 0, (1000, 0, 0, 0), "3 gpu used");
    }
}
