//! How deep objects and lists may be inside each other in what members get and report.
//!
//! JSON readers stop at 128 levels. A manifest or a status that is nested less than [`MAX`] levels can still be read
//! inside a Work, and that inside a list. Deliberately absent: the API server's own limit, which is larger.

use serde_json::Value;

/// Levels of objects and lists of a manifest, of an override's result, and of a reported status. A pod template in a
/// job has about 15.
pub const MAX: usize = 64;

/// Whether a value has at most so many levels. A number or text has none. Goes no deeper than the levels allowed.
pub fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(fields) => levels > 0 && fields.values().all(|value| fits(value, levels - 1)),
        Value::Array(items) => levels > 0 && items.iter().all(|value| fits(value, levels - 1)),
        _ => true,
    }
}

/// Levels and values of a tree, however deep it is: counted without recursion.
fn extent(value: &Value) -> (usize, usize) {
    let (mut deepest, mut values) = (0, 0);
    let mut left = vec![(value, 1)];
    while let Some((value, level)) = left.pop() {
        values += 1;
        match value {
            Value::Object(fields) => left.extend(fields.values().map(|value| (value, level + 1))),
            Value::Array(items) => left.extend(items.iter().map(|value| (value, level + 1))),
            _ => continue,
        }
        deepest = deepest.max(level);
    }
    (deepest, values)
}

/// Levels of objects and lists of a value.
pub fn levels(value: &Value) -> usize {
    extent(value).0
}

/// Values in a tree, with all objects and lists.
pub fn values(value: &Value) -> usize {
    extent(value).1
}

/// # Errors
/// One sentence: the levels found, and those allowed.
pub fn check(value: &Value) -> Result<(), String> {
    if fits(value, MAX) {
        return Ok(());
    }
    Err(format!("found {} levels of nested objects and lists; allowed: {MAX}", levels(value)))
}

/// Replaces with null what is deeper than so many levels; says whether there was any.
pub fn cut(value: &mut Value, levels: usize) -> bool {
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => {
            *value = Value::Null;
            true
        }
        Value::Object(fields) => {
            fields.values_mut().filter_map(|value| cut(value, levels - 1).then_some(())).count() > 0
        }
        Value::Array(items) => {
            items.iter_mut().filter_map(|value| cut(value, levels - 1).then_some(())).count() > 0
        }
        _ => false,
    }
}

/// Size of a value as JSON, counted without serializing it.
pub fn bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Size of a manifest as JSON.
///
/// # Errors
/// One sentence: it is nested too deeply, and so it was not serialized.
pub fn size(manifest: &Value) -> Result<usize, String> {
    check(manifest)?;
    Ok(bytes(manifest))
}

/// Adds up the manifests of one Work, and refuses the first that is too much: whoever writes large objects decides how many
/// there are, so nobody looks further than that.
#[derive(Debug)]
pub struct Load {
    most: usize,
    dependencies: usize,
    bytes: usize,
    manifests: usize,
    largest: usize,
    /// Kind and name of the largest.
    named: String,
}

impl Load {
    /// For a job with so many dependencies, in a Work of at most so many bytes.
    pub fn new(dependencies: usize, most: usize) -> Self {
        Self { most, dependencies, bytes: 0, manifests: 0, largest: 0, named: String::new() }
    }

    /// Adds a manifest whose size is known, as [`size`] finds it.
    ///
    /// # Errors
    /// Why the manifests do not fit into the Work, naming the largest so far, or the one that is nested too deeply.
    pub fn add(&mut self, manifest: &Value, size: &Result<usize, String>) -> Result<(), String> {
        let named = || {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            format!("{} {name}", manifest["kind"].as_str().unwrap_or_default())
        };
        let size = size.as_ref().map_err(|found| format!("{}: {found}", named()))?;
        self.bytes = self.bytes.saturating_add(*size);
        self.manifests += 1;
        if *size > self.largest {
            (self.largest, self.named) = (*size, named());
        }
        if self.bytes <= self.most {
            return Ok(());
        }
        let Self { most, dependencies, manifests, largest, named, .. } = self;
        Err(format!(
            "the job and its {dependencies} dependencies: found more than {most} bytes of JSON, the largest of the first \
             {manifests} objects is {named} with {largest}; allowed: {most} in total"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |value, _| json!({"a": value}))
    }

    #[test]
    fn levels_are_counted_and_cut() {
        assert_eq!((levels(&json!(1)), levels(&json!([])), levels(&json!({"a": [1, {}]}))), (0, 1, 3));
        assert_eq!(values(&json!({"a": [1, {}]})), 4);
        assert_eq!(check(&nested(MAX)), Ok(()));
        let found = check(&nested(MAX + 1)).unwrap_err();
        assert_eq!(found, "found 65 levels of nested objects and lists; allowed: 64");
        let mut value = json!({"deep": nested(MAX), "more": [nested(MAX)], "flat": 1});
        assert!(cut(&mut value, MAX));
        assert_eq!((levels(&value), &value["flat"]), (MAX, &json!(1)));
        assert!(!cut(&mut value, MAX));
    }

    #[test]
    fn manifests_are_added_up_until_they_are_too_much() {
        let map = |name: &str, length: usize| {
            let text = "x".repeat(length);
            json!({"kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": text}})
        };
        let (small, large) = (map("small", 10), map("large", 100));
        assert_eq!(size(&small), Ok(small.to_string().len()));
        let most = bytes(&small) + bytes(&large);
        let mut load = Load::new(50, most);
        assert_eq!(load.add(&small, &size(&small)), Ok(()));
        assert_eq!(load.add(&large, &size(&large)), Ok(()), "just as much as is allowed");
        let why = load.add(&small, &size(&small)).unwrap_err();
        assert_eq!(
            why,
            format!(
                "the job and its 50 dependencies: found more than {most} bytes of JSON, the largest of the first 3 objects is \
                 ConfigMap large with {}; allowed: {most} in total",
                bytes(&large)
            )
        );
        let mut deep = map("deep", 1);
        deep["data"] = nested(MAX);
        let why = Load::new(1, most).add(&deep, &size(&deep)).unwrap_err();
        assert_eq!(why, "ConfigMap deep: found 65 levels of nested objects and lists; allowed: 64");
    }
}
