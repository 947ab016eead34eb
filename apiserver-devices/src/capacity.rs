//! Capacities of devices, and how much of one a claim may ask for.
//!
//! Inputs: capacities of a device, in the stored form. Source: the validation of Kubernetes 1.36.

use super::parts;
use fleet_apiserver_ground::quantity::canonical;
use fleet_apiserver_schema::field::At;
use fleet_resources::quantity;
use serde_json::json;

/// Most amounts to choose from.
const MOST_VALUES: usize = 10;
/// Most amounts whose order is looked at: more are too many anyway, and each that is out of order is told.
const MOST_ORDERED: usize = 1_000;

/// An amount in thousandths.
fn amount(at: &At) -> i128 {
    let text = at.text();
    let fine = quantity::parse("cpu", text).map(i128::from);
    // Too many thousandths are counted as wholes.
    fine.or_else(|_| quantity::parse("storage", text).map(|n| i128::from(n) * 1000)).unwrap_or(0)
}

/// The whole number of an amount, rounded up.
fn whole(amount: i128) -> i128 {
    amount.div_euclid(1000) + i128::from(amount.rem_euclid(1000) != 0)
}

/// Checks one capacity; `shared`: several claims get a part of the device.
pub fn check(capacity: &At, shared: bool) {
    let policy = capacity.at("requestPolicy");
    if !policy.is_set() {
        return;
    }
    if !shared {
        return policy.forbidden("allowMultipleAllocations must be true");
    }
    let (values, range) = (policy.at("validValues"), policy.at("validRange"));
    let (all, default) = (capacity.at("value"), policy.at("default"));
    match (!values.is_empty(), range.is_set()) {
        (true, true) => policy.forbidden(
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        ),
        (true, false) if !default.is_set() => default.required("required when validValues is defined"),
        (false, true) if !default.is_set() => default.required("required when validRange is defined"),
        (true, false) => choice(&values, &default, &all),
        (false, true) => self::range(&range, &default, &all),
        (false, false) => {}
    }
}

/// Amounts of which one is asked for.
fn choice(values: &At, default: &At, all: &At) {
    let mut last = None;
    for value in values.items().take(MOST_ORDERED) {
        let found = amount(&value);
        if last.is_some_and(|last| last > found) {
            value.invalid("values must be sorted in ascending order");
        }
        last = Some(found);
    }
    let looked_at = values.len() <= MOST_VALUES;
    parts::set(
        values,
        MOST_VALUES,
        |value| {
            if amount(value) > amount(all) {
                value.invalid(&format!("option is larger than capacity value: {}", all.text()));
            }
        },
        |value| format!("\"{}\"", whole(amount(value))),
    );
    let known = looked_at && values.items().any(|value| amount(&value) == amount(default));
    if !known {
        values.tell(default.text(), &["default value is not valid according to the requestPolicy"]);
    }
}

fn refuse(at: &At, shown: &At, why: String) {
    at.tell(shown.text(), &[why]);
}

/// A range in which the amount that is asked for lies.
fn range(range: &At, default: &At, all: &At) {
    let (least, most, step) = (range.at("min"), range.at("max"), range.at("step"));
    if !least.is_set() {
        return least.required("required when validRange is defined");
    }
    if amount(&least) > amount(all) {
        refuse(&least, &least, format!("min is larger than capacity value: {}", all.text()));
    }
    if amount(default) < amount(&least) {
        refuse(&least, default, format!("default is less than min: {}", least.text()));
    }
    if most.is_set() {
        if amount(&least) > amount(&most) {
            refuse(&most, &least, format!("min is larger than max: {}", most.text()));
        }
        if amount(&most) > amount(all) {
            refuse(&most, &most, format!("max is larger than capacity value: {}", all.text()));
        }
        if amount(default) > amount(&most) {
            refuse(&most, default, format!("default is more than max: {}", most.text()));
        }
    }
    if !step.is_set() {
        return;
    }
    let next = amount(&least) + amount(&step);
    if next > amount(all) {
        let next = written(next, &least);
        refuse(&step, &step, format!("one step {next} is larger than capacity value: {}", all.text()));
    }
    let (from, by) = (whole(amount(&least)), whole(amount(&step)));
    for value in [Some(default), most.is_set().then_some(&most)].into_iter().flatten() {
        if by != 0 && (whole(amount(value)) - from) % by != 0 {
            let why =
                format!("value is not a multiple of a given step ({}) from ({})", step.text(), least.text());
            refuse(&step, value, why);
        }
    }
}

/// An amount in the form of another one.
fn written(amount: i128, like: &At) -> String {
    let bytes = i64::try_from(whole(amount)).unwrap_or(i64::MAX);
    if like.text().ends_with('i') {
        return quantity::format("memory", bytes);
    }
    canonical(&json!(format!("{amount}m"))).unwrap_or_else(|| bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::Value;

    fn told(policy: Value) -> Vec<String> {
        let (value, causes) = (json!({"value": "10Gi", "requestPolicy": policy}), Causes::default());
        check(&At::root(&value, &causes), true);
        let found = causes.into_inner().into_iter();
        found.map(|c| format!("{}: {}", c.field.trim_start_matches("requestPolicy"), c.message)).collect()
    }

    #[test]
    fn one_of_several_amounts() {
        assert!(told(json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]})).is_empty());
        assert_eq!(
            told(json!({"default": "3Gi", "validValues": ["2Gi", "1Gi", "20Gi", "2Gi"]})),
            [
                ".validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order",
                ".validValues[3]: Invalid value: \"2Gi\": values must be sorted in ascending order",
                ".validValues[2]: Invalid value: \"20Gi\": option is larger than capacity value: 10Gi",
                ".validValues[3]: Duplicate value: \"2147483648\"",
                ".validValues: Invalid value: \"3Gi\": default value is not valid according to the requestPolicy",
            ]
        );
        let many: Vec<String> = (1..12).map(|n| format!("{n}Gi")).collect();
        assert_eq!(
            told(json!({"default": "1Gi", "validValues": many})),
            [
                ".validValues: Too many: 11: must have at most 10 items",
                ".validValues: Invalid value: \"1Gi\": default value is not valid according to the requestPolicy",
            ]
        );
        let falling: Vec<String> = (0..100_000).map(|n| (n % 2).to_string()).collect();
        assert_eq!(told(json!({"default": "1", "validValues": falling})).len(), MOST_ORDERED / 2 - 1 + 2);
    }

    #[test]
    fn an_amount_in_a_range() {
        assert!(
            told(json!({"default": "4Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "2Gi"}}))
                .is_empty()
        );
        assert_eq!(
            told(json!({"default": "1Gi", "validRange": {"min": "20Gi", "max": "12Gi", "step": "3Gi"}})),
            [
                ".validRange.min: Invalid value: \"20Gi\": min is larger than capacity value: 10Gi",
                ".validRange.min: Invalid value: \"1Gi\": default is less than min: 20Gi",
                ".validRange.max: Invalid value: \"20Gi\": min is larger than max: 12Gi",
                ".validRange.max: Invalid value: \"12Gi\": max is larger than capacity value: 10Gi",
                ".validRange.step: Invalid value: \"3Gi\": one step 23Gi is larger than capacity value: 10Gi",
                ".validRange.step: Invalid value: \"1Gi\": value is not a multiple of a given step (3Gi) from (20Gi)",
                ".validRange.step: Invalid value: \"12Gi\": value is not a multiple of a given step (3Gi) from (20Gi)",
            ]
        );
        let least = ".validRange.min: Required value: required when validRange is defined";
        assert_eq!(told(json!({"default": "1Gi", "validRange": {}})), [least]);
    }
}
