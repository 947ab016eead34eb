//! Indexes of an indexed Job as text, such as `0-2,5`.
//!
//! Inputs: the text and how many completions there are. Source: the validation of Kubernetes 1.36.

/// Counts indexes, which have to grow from left to right.
///
/// # Errors
/// What is wrong with the text.
pub fn count(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(before) = last.filter(|before| *before >= first) {
            return Err(decreasing(before, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that is in both texts. What cannot be read is passed over: it is told elsewhere.
pub fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    if completed.is_empty() || failed.is_empty() {
        return None;
    }
    let mut completed = completed.split(',').filter_map(|part| interval(part, completions).ok());
    let mut failed = failed.split(',').filter_map(|part| interval(part, completions).ok());
    let (mut one, mut other) = (completed.next()?, failed.next()?);
    loop {
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        if one.0 <= other.0 {
            one = completed.next()?;
        } else {
            other = failed.next()?;
        }
    }
}

fn decreasing(before: i64, now: i64) -> String {
    format!("non-increasing order, previous: {before}, current: {now}")
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut ends = text.split('-');
    let (first, end) = (ends.next().unwrap_or_default(), ends.next());
    if ends.next().is_some() {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let first = index(first, completions)?;
    let Some(end) = end else { return Ok((first, first)) };
    let end = index(end, completions)?;
    if first >= end { Err(decreasing(first, end)) } else { Ok((first, end)) }
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    let found: i64 =
        text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
    if found >= completions { Err(format!("too large index: {text:?}")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_or_refused() {
        for (text, wanted) in [
            ("", Ok(0)),
            ("3", Ok(1)),
            ("0-2,5,7-8", Ok(6)),
            ("1,1", Err("non-increasing order, previous: 1, current: 1")),
            ("2-1", Err("non-increasing order, previous: 2, current: 1")),
            ("a", Err("cannot convert string to integer for index: \"a\"")),
            ("1,", Err("cannot convert string to integer for index: \"\"")),
            ("-1", Err("cannot convert string to integer for index: \"\"")),
            ("9-10", Err("too large index: \"10\"")),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
        ] {
            assert_eq!(count(text, 10), wanted.map_err(str::to_string), "{text}");
        }
    }

    #[test]
    fn what_is_in_both_is_found() {
        assert_eq!(overlap("0-2,5", "3,4,6", 10), None);
        assert_eq!(overlap("0-2,5", "3,5-6", 10), Some(5));
        assert_eq!(overlap("x,4-7", "1,2-6", 10), Some(4));
        assert_eq!(overlap("", "1", 10), None);
    }
}
