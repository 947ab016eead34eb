//! Units of scores of nodes: millionths of Volcano's points.

use crate::pod::Class;

/// Parts of a point.
pub const POINT: i64 = 1_000_000;
/// Volcano's highest score of a node.
pub const FULL: i64 = 100 * POINT;

/// What pods of the class request of one dimension.
pub(crate) fn asked(class: &Class, place: usize) -> i64 {
    class.request.iter().find(|(at, _)| usize::from(*at) == place).map_or(0, |(_, amount)| *amount)
}

/// The used part of `of`, of a full score.
pub(crate) fn parts(used: i64, of: i64) -> i64 {
    if of <= 0 {
        return FULL;
    }
    // Bytes of a large node times a full score exceed i64.
    match used.checked_mul(FULL) {
        Some(product) => product / of,
        None => (i128::from(used) * i128::from(FULL) / i128::from(of)) as i64,
    }
}
