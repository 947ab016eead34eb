//! Paths into the status of an object: those parts of JSONPath (RFC 9535) that reach each value at most once.
//!
//! A tenant writes the path and a member the status, so every value that a look visits is counted, and a look ends when
//! it has visited too many. Deliberately absent: what visits values again (`..`, lists of selectors, `$` inside of a
//! filter), functions, and comparisons of lists or objects.

mod read;

use std::cmp::Ordering;

use serde_json::{Map, Value};

/// A path in Kubernetes' form `{.a.b}`, or in the standard form `$.a.b`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Segment>);

/// One step from a value to values in it.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Name(String),
    /// From the end if negative.
    Index(i64),
    All,
    Slice(Slice),
    Where(Filter),
}

/// Items from `start` up to `end`; both from the end of the list if negative.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Filter {
    Any(Vec<Filter>),
    All(Vec<Filter>),
    Not(Box<Filter>),
    Exists(Vec<Segment>),
    Compares(Operand, Operator, Operand),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    /// Names and indices only.
    Path(Vec<Segment>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// How many values may still be visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance(pub u32);

/// More values would have been visited than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Allowance {
    fn spend(&mut self) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(1).ok_or(Exhausted)?;
        Ok(())
    }
}

impl JsonPath {
    /// Longest path, in bytes.
    pub const MAX: usize = 256;

    /// Reads a path of at most [`Self::MAX`] bytes. `None` if it is longer, or not one of the forms that this module
    /// knows.
    pub fn read(text: &str) -> Option<Self> {
        (text.len() <= Self::MAX).then(|| read::path(text)).flatten().map(Self)
    }

    /// The first value at the path, in the order of the document; `None` if there is none.
    ///
    /// # Errors
    /// The look ended because `allowance` was spent.
    pub fn first<'v>(
        &self,
        value: &'v Value,
        allowance: &mut Allowance,
    ) -> Result<Option<&'v Value>, Exhausted> {
        first(&self.0, value, allowance)
    }
}

type Found<'v> = Result<Option<&'v Value>, Exhausted>;

fn first<'v>(segments: &[Segment], at: &'v Value, allowance: &mut Allowance) -> Found<'v> {
    allowance.spend()?;
    let Some((segment, rest)) = segments.split_first() else { return Ok(Some(at)) };
    let one = match segment {
        Segment::Name(name) => at.as_object().and_then(|map| map.get(name)),
        Segment::Index(index) => at.as_array().and_then(|list| item(list, *index)),
        Segment::All => return first_of(children(at), None, rest, allowance),
        Segment::Where(filter) => return first_of(children(at), Some(filter), rest, allowance),
        Segment::Slice(slice) => {
            let list = at.as_array().map_or(&[][..], Vec::as_slice);
            return first_of(slice.of(list), None, rest, allowance);
        }
    };
    one.map_or(Ok(None), |one| first(rest, one, allowance))
}

fn first_of<'v>(
    values: impl Iterator<Item = &'v Value>,
    filter: Option<&Filter>,
    rest: &[Segment],
    allowance: &mut Allowance,
) -> Found<'v> {
    for value in values {
        let is_meant = filter.map_or(Ok(true), |filter| filter.holds(value, allowance))?;
        let found = if is_meant { first(rest, value, allowance)? } else { None };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The values in a list or an object; none in anything else.
fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array().into_iter().flatten();
    list.chain(value.as_object().into_iter().flat_map(Map::values))
}

fn item(list: &[Value], index: i64) -> Option<&Value> {
    list.get(usize::try_from(from_start(index, list.len())).ok()?)
}

/// An index that counts from the end if it is negative, as one that counts from the start.
fn from_start(index: i64, length: usize) -> i64 {
    if index >= 0 { index } else { index.saturating_add(i64::try_from(length).unwrap_or(i64::MAX)) }
}

impl Slice {
    fn of<'v>(&self, list: &'v [Value]) -> impl Iterator<Item = &'v Value> + use<'v> {
        let bound = |at: Option<i64>, absent: usize| {
            let at = at.map(|at| usize::try_from(from_start(at, list.len()).max(0)).unwrap_or(usize::MAX));
            at.unwrap_or(absent).min(list.len())
        };
        let (start, end) = (bound(self.start, 0), bound(self.end, list.len()));
        list.get(start..end).unwrap_or_default().iter().step_by(self.step)
    }
}

impl Filter {
    fn holds(&self, value: &Value, allowance: &mut Allowance) -> Result<bool, Exhausted> {
        allowance.spend()?;
        match self {
            Self::Any(filters) => {
                for filter in filters {
                    if filter.holds(value, allowance)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::All(filters) => {
                for filter in filters {
                    if !filter.holds(value, allowance)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Not(filter) => Ok(!filter.holds(value, allowance)?),
            Self::Exists(segments) => Ok(first(segments, value, allowance)?.is_some()),
            Self::Compares(left, operator, right) => {
                let order = order(left.of(value, allowance)?, right.of(value, allowance)?);
                Ok(operator.agrees(order))
            }
        }
    }
}

impl Operand {
    fn of<'v>(&'v self, value: &'v Value, allowance: &mut Allowance) -> Found<'v> {
        match self {
            Self::Literal(literal) => Ok(Some(literal)),
            Self::Path(segments) => first(segments, value, allowance),
        }
    }
}

impl Operator {
    fn agrees(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Eq => order == Some(Ordering::Equal),
            Self::Ne => order != Some(Ordering::Equal),
            Self::Lt => order == Some(Ordering::Less),
            Self::Le => order.is_some_and(Ordering::is_le),
            Self::Gt => order == Some(Ordering::Greater),
            Self::Ge => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// `None` for values that are neither equal nor in an order. Two values that are not there are equal.
fn order(left: Option<&Value>, right: Option<&Value>) -> Option<Ordering> {
    match (left, right) {
        (None, None) | (Some(Value::Null), Some(Value::Null)) => Some(Ordering::Equal),
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => (left == right).then_some(Ordering::Equal),
        (Some(Value::String(left)), Some(Value::String(right))) => Some(left.cmp(right)),
        (Some(Value::Number(left)), Some(Value::Number(right))) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
