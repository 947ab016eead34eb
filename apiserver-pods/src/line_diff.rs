//! The difference of two texts, in the unified form.
//!
//! Inputs: lines, each with its end. The matching is the one of Python's difflib, which the real server's messages are
//! made with: the longest common run of lines first, then what is left and right of it; lines that are very frequent
//! in a long text do not start a run.

use std::cell::Cell;
use std::collections::HashMap;

/// Lines that are shown around a change.
const CONTEXT: usize = 3;
/// A text of this many lines has lines that are too frequent to start a run.
const LONG: usize = 200;
/// Most places of lines that are looked at; what is left then counts as replaced. Otherwise two texts that agree in every other
/// line would keep a core busy for minutes.
const MOST_WORK: usize = 1_000_000;
/// Longest text that is compared.
const LONGEST: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Equal,
    Replace,
    Delete,
    Insert,
}

/// What becomes of the lines `from.0..from.1`: the lines `to.0..to.1`.
#[derive(Clone, Copy)]
struct Step {
    tag: Tag,
    from: (usize, usize),
    to: (usize, usize),
}

/// Lines that two texts have in common: where in each, and how many.
type Run = (usize, usize, usize);

struct Matcher<'a> {
    a: &'a [String],
    b: &'a [String],
    /// Where in `b` a line is, unless it is too frequent.
    places: HashMap<&'a str, Vec<usize>>,
    /// Places looked at so far.
    work: Cell<usize>,
}

impl<'a> Matcher<'a> {
    fn new(a: &'a [String], b: &'a [String]) -> Matcher<'a> {
        let mut places: HashMap<&'a str, Vec<usize>> = HashMap::new();
        for (j, line) in b.iter().enumerate() {
            places.entry(line.as_str()).or_default().push(j);
        }
        if b.len() >= LONG {
            let most = b.len() / 100 + 1;
            places.retain(|_, found| found.len() <= most);
        }
        Matcher { a, b, places, work: Cell::new(0) }
    }

    /// The longest run within these bounds; of several the first.
    fn longest(&self, (a_low, a_high): (usize, usize), (b_low, b_high): (usize, usize)) -> Run {
        let (mut i, mut j, mut size) = (a_low, b_low, 0);
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for at in a_low..a_high {
            let mut next = HashMap::new();
            let found = self.places.get(self.a[at].as_str()).map(Vec::as_slice).unwrap_or_default();
            self.work.set(self.work.get() + 1 + found.len());
            if self.is_spent() {
                break;
            }
            for &place in found.iter().filter(|place| (b_low..b_high).contains(*place)) {
                let before = place.checked_sub(1).and_then(|p| lengths.get(&p)).copied().unwrap_or(0);
                let length = before + 1;
                next.insert(place, length);
                if length > size {
                    (i, j, size) = (at + 1 - length, place + 1 - length, length);
                }
            }
            lengths = next;
        }
        while i > a_low && j > b_low && self.a[i - 1] == self.b[j - 1] {
            (i, j, size) = (i - 1, j - 1, size + 1);
        }
        while i + size < a_high && j + size < b_high && self.a[i + size] == self.b[j + size] {
            size += 1;
        }
        (i, j, size)
    }

    fn is_spent(&self) -> bool {
        self.work.get() > MOST_WORK
    }

    /// All runs, in order, and an empty one at the end.
    fn runs(&self) -> Vec<Run> {
        let mut found = Vec::new();
        let mut waiting = vec![((0, self.a.len()), (0, self.b.len()))];
        while let Some((a, b)) = waiting.pop() {
            let (i, j, size) = self.longest(a, b);
            if size == 0 || self.is_spent() {
                continue;
            }
            found.push((i, j, size));
            if a.0 < i && b.0 < j {
                waiting.push(((a.0, i), (b.0, j)));
            }
            if i + size < a.1 && j + size < b.1 {
                waiting.push(((i + size, a.1), (j + size, b.1)));
            }
        }
        found.sort_unstable();
        let mut merged: Vec<Run> = Vec::new();
        for (i, j, size) in found {
            match merged.last_mut() {
                Some(last) if last.0 + last.2 == i && last.1 + last.2 == j => last.2 += size,
                _ => merged.push((i, j, size)),
            }
        }
        merged.push((self.a.len(), self.b.len(), 0));
        merged
    }

    fn steps(&self) -> Vec<Step> {
        let (mut i, mut j) = (0, 0);
        let mut steps = Vec::new();
        for (at, place, size) in self.runs() {
            let tag = match (i < at, j < place) {
                (true, true) => Some(Tag::Replace),
                (true, false) => Some(Tag::Delete),
                (false, true) => Some(Tag::Insert),
                (false, false) => None,
            };
            if let Some(tag) = tag {
                steps.push(Step { tag, from: (i, at), to: (j, place) });
            }
            (i, j) = (at + size, place + size);
            if size > 0 {
                steps.push(Step { tag: Tag::Equal, from: (at, i), to: (place, j) });
            }
        }
        steps
    }
}

/// The last lines of a step that nothing changes in.
fn tail(step: Step) -> Step {
    let cut = |(low, high): (usize, usize)| (low.max(high.saturating_sub(CONTEXT)), high);
    Step { from: cut(step.from), to: cut(step.to), ..step }
}

/// The first lines of a step that nothing changes in.
fn head(step: Step) -> Step {
    let cut = |(low, high): (usize, usize)| (low, high.min(low + CONTEXT));
    Step { from: cut(step.from), to: cut(step.to), ..step }
}

/// Steps that are near each other, with some lines around them.
fn groups(mut steps: Vec<Step>) -> Vec<Vec<Step>> {
    if let Some(first) = steps.first_mut()
        && first.tag == Tag::Equal
    {
        *first = tail(*first);
    }
    if let Some(last) = steps.last_mut()
        && last.tag == Tag::Equal
    {
        *last = head(*last);
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for mut step in steps {
        if step.tag == Tag::Equal && step.from.1 - step.from.0 > 2 * CONTEXT {
            group.push(head(step));
            groups.push(std::mem::take(&mut group));
            step = tail(step);
        }
        group.push(step);
    }
    if !(group.is_empty() || (group.len() == 1 && group[0].tag == Tag::Equal)) {
        groups.push(group);
    }
    groups
}

/// Lines of a text as the head of a group names them.
fn range(from: usize, to: usize) -> String {
    match to - from {
        1 => format!("{}", from + 1),
        0 => format!("{from},0"),
        count => format!("{},{count}", from + 1),
    }
}

/// The difference of two texts; nothing where they are equal.
pub(crate) fn unified(a: &[String], b: &[String]) -> String {
    if a == b || a.len().max(b.len()) > LONGEST {
        return String::new();
    }
    let mut out = String::new();
    let mut put = |sign: char, lines: &[String]| {
        for line in lines {
            out.push(sign);
            out.push_str(line);
        }
    };
    for group in groups(Matcher::new(a, b).steps()) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (range(first.from.0, last.from.1), range(first.to.0, last.to.1));
        put('@', &[format!("@ -{from} +{to} @@\n")]);
        for step in &group {
            let (before, after) = (&a[step.from.0..step.from.1], &b[step.to.0..step.to.1]);
            match step.tag {
                Tag::Equal => put(' ', before),
                Tag::Delete => put('-', before),
                Tag::Insert => put('+', after),
                Tag::Replace => {
                    put('-', before);
                    put('+', after);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(|line| format!("{line}\n")).collect()
    }

    /// Every other line is common, so that each run is one line, and what is right of it is searched again.
    #[test]
    fn hostile_texts_cost_a_bounded_number_of_looks() {
        let text = |own: &str| -> Vec<String> {
            (0..LONGEST).map(|n| if n % 2 == 0 { format!("{n}\n") } else { format!("{own}{n}\n") }).collect()
        };
        let (before, after) = (text("a"), text("b"));
        let matcher = Matcher::new(&before, &after);
        let steps = matcher.steps();
        assert!(matcher.is_spent(), "the texts would cost more than is allowed");
        assert!(matcher.work.get() <= MOST_WORK + LONGEST / 100 + 2, "{}", matcher.work.get());
        let last = steps.last().expect("steps");
        assert_eq!((last.from.1, last.to.1), (LONGEST, LONGEST), "all lines are told of");
    }

    #[test]
    fn what_changed_is_shown_with_three_lines_around_it() {
        let before = lines("a b c d e f g h i j k l m n o p");
        let after = lines("a b c d e F g h i j k l m n o p q");
        assert_eq!(
            unified(&before, &after),
            "@@ -3,7 +3,7 @@\n c\n d\n e\n-f\n+F\n g\n h\n i\n@@ -14,3 +14,4 @@\n n\n o\n p\n+q\n"
        );
        assert_eq!(unified(&before, &before), "");
        assert_eq!(unified(&lines("a"), &lines("b")), "@@ -1 +1 @@\n-a\n+b\n");
    }
}
