//! Changing parts of container image names.
//!
//! An image is `[registry/]repository[:tag|@digest]`; the first part counts as
//! the registry when it holds a dot or a colon or is `localhost`.

use serde_json::Value;

use super::allowance::Allowance;
use super::problem::Problem;
use super::spec::{ImageComponent, ImageOverrider, Operator};
use super::templates::pod_specs;

struct Image {
    registry: String,
    repository: String,
    /// With its separator: `:v1` or `@sha256:...`.
    tag: String,
}

pub(super) fn apply(
    object: &mut Value,
    overrider: &ImageOverrider,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    allowance.operation("imageOverrider")?;
    if let Some(predicate) = &overrider.predicate {
        let path = &predicate.path;
        let Some(field) = object.pointer_mut(path) else {
            return Err(Problem::new(path, "nothing", "a field that exists"));
        };
        allowance.bytes(path, cost(field, overrider))?;
        return change(field, overrider).ok_or_else(|| Problem::new(path, "no text", "an image name"));
    }
    let mut outcome = Ok(());
    pod_specs(object, &mut |spec| {
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for image in containers.into_iter().flatten().filter_map(|container| container.get_mut("image")) {
                // An image that is not text is left to the member to refuse.
                if outcome.is_ok() {
                    outcome = allowance.bytes("imageOverrider", cost(image, overrider));
                }
                if outcome.is_ok() {
                    let _ = change(image, overrider);
                }
            }
        }
    });
    outcome
}

/// Bytes that are read and written.
fn cost(field: &Value, overrider: &ImageOverrider) -> usize {
    field.as_str().map_or(0, str::len) + overrider.value.len()
}

fn change(field: &mut Value, overrider: &ImageOverrider) -> Option<()> {
    let mut image = parse(field.as_str()?);
    let part = match overrider.component {
        ImageComponent::Registry => &mut image.registry,
        ImageComponent::Repository => &mut image.repository,
        ImageComponent::Tag => &mut image.tag,
    };
    let tag = overrider.component == ImageComponent::Tag;
    let given = match (tag, overrider.value.starts_with("sha256:")) {
        (true, true) => format!("@{}", overrider.value),
        (true, false) => format!(":{}", overrider.value),
        (false, _) => overrider.value.clone(),
    };
    match overrider.operator {
        Operator::Replace => *part = given,
        Operator::Remove => part.clear(),
        Operator::Add if tag && part.is_empty() => *part = given,
        Operator::Add => part.push_str(&overrider.value),
    }
    let slash = if image.registry.is_empty() || image.repository.is_empty() { "" } else { "/" };
    *field = Value::from(format!("{}{slash}{}{}", image.registry, image.repository, image.tag));
    Some(())
}

fn parse(text: &str) -> Image {
    let (registry, rest) = match text.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => ("", text),
    };
    let cut = rest.find('@').or_else(|| rest.rfind(':')).unwrap_or(rest.len());
    let (repository, tag) = rest.split_at(cut);
    Image { registry: registry.to_owned(), repository: repository.to_owned(), tag: tag.to_owned() }
}
