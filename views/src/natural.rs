//! The order of names as people count: `node-2` before `node-10`.

use std::cmp::Ordering;

/// Digits are compared as a number, all else as text; names that differ in leading zeros alone, as text.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (text, other) = (before_digits(&mut left), before_digits(&mut right));
        let order = text.cmp(other).then_with(|| number(&mut left, &mut right));
        if order != Ordering::Equal {
            return order;
        }
        if left.is_empty() || right.is_empty() {
            return left.len().cmp(&right.len()).then_with(|| a.cmp(b));
        }
    }
}

fn before_digits<'n>(name: &mut &'n str) -> &'n str {
    cut(name, |character| character.is_ascii_digit())
}

fn digits<'n>(name: &mut &'n str) -> &'n str {
    cut(name, |character| !character.is_ascii_digit())
}

/// The numbers in front, of any length: without leading zeros the longer one is greater.
fn number(left: &mut &str, right: &mut &str) -> Ordering {
    let (a, b) = (digits(left).trim_start_matches('0'), digits(right).trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// What stands in front of the first such character; the rest stays.
fn cut<'n>(name: &mut &'n str, ends: impl Fn(char) -> bool) -> &'n str {
    let (head, rest) = name.split_at(name.find(ends).unwrap_or(name.len()));
    *name = rest;
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let sorted = [
            "",
            "10",
            "a",
            "a-node-0",
            "a-node-1",
            "a-node-2",
            "a-node-10",
            "a-node-10-b",
            "a-node-x",
            "b1c1",
            "b1c2",
            "b1c10",
            "b2c1",
            "z007",
            "z7",
            "z99999999999999999999998",
            "z99999999999999999999999",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(natural_order(one, other), at.cmp(&other_at), "{one} and {other}");
            }
        }
    }
}
