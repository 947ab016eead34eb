use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    name: &'static str,
    uid: &'static str,
    version: &'static str,
}

struct Meta;

impl Metadata<Unit> for Meta {
    fn key(unit: &Unit) -> Key {
        (String::new(), unit.name.to_owned())
    }

    fn uid(unit: &Unit) -> &str {
        unit.uid
    }

    fn version(unit: &Unit) -> Version {
        Version::parse(unit.version)
    }
}

fn unit(name: &'static str, uid: &'static str, version: &'static str) -> Unit {
    Unit { name, uid, version }
}

fn listing(version: &str, objects: &[Unit]) -> Change<Unit> {
    Change::Reset(Listing { objects: objects.to_vec(), version: Version::parse(version), incarnation: None })
}

/// Tells all of it, then shows what is known, and what changed last: `name@version`.
fn tell(mirror: &mut Mirror<Unit>, changes: impl IntoIterator<Item = Change<Unit>>) -> (String, Vec<String>) {
    let mut last = Vec::new();
    for change in changes {
        last =
            mirror.take::<Meta, Unit>(change, |unit, _| unit).keys().into_iter().map(|key| key.1).collect();
    }
    let known = mirror.values().map(|unit| format!("{}@{}", unit.name, unit.version));
    (known.collect::<Vec<_>>().join(" "), last)
}

#[test]
fn an_answer_that_overtakes_a_listing_stands() {
    let u = unit("u", "1", "5");
    for (version, answer) in [("", Change::Apply(u.clone())), ("3", Change::Answer(u.clone()))] {
        let mut mirror = Mirror::default();
        let older = [listing(version, &[]), answer, listing(version, &[])];
        assert_eq!(tell(&mut mirror, older).0, "u@5", "{version:?}");
        // The watch that goes on from the older listing.
        assert_eq!(tell(&mut mirror, [Change::Apply(u.clone())]).0, "u@5");
        assert_eq!(mirror.len(), 1);
    }
}

#[test]
fn the_listing_ends_what_it_does_not_name() {
    let mut mirror = Mirror::default();
    tell(&mut mirror, [listing("2", &[unit("a", "1", "1"), unit("b", "2", "2")])]);
    let (known, changed) =
        tell(&mut mirror, [Change::Listing, listing("6", &[unit("b", "2", "2"), unit("c", "3", "3")])]);
    assert_eq!(
        (known.as_str(), changed),
        ("b@2 c@3", vec!["c".to_owned(), "a".to_owned()]),
        "b has not changed"
    );
    // Its answer comes late.
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("a", "1", "4"))]).0, "b@2 c@3");
}

#[test]
fn what_only_an_answer_told_of_ends_with_a_later_listing() {
    let mut mirror = Mirror::default();
    tell(&mut mirror, [listing("1", &[]), Change::Answer(unit("made", "1", "5"))]);
    assert_eq!(tell(&mut mirror, [Change::Listing, listing("4", &[])]).0, "made@5");
    assert_eq!(tell(&mut mirror, [Change::Listing, listing("9", &[])]).0, "");
}

#[test]
fn an_old_answer_revives_nothing() {
    let mut mirror = Mirror::with_ends(1);
    tell(
        &mut mirror,
        [listing("1", &[]), Change::Apply(unit("a", "1", "5")), Change::Delete(unit("a", "1", "7"))],
    );
    tell(&mut mirror, [Change::Apply(unit("x", "9", "8")), Change::Delete(unit("x", "9", "9"))]);
    assert_eq!(mirror.ended.len(), 1, "the end of a is forgotten");
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("a", "1", "6"))]).0, "");
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("a", "2", "12"))]).0, "a@12", "another of that name");
    assert_eq!(tell(&mut mirror, [Change::Delete(unit("a", "1", "7"))]).0, "a@12", "news of the old one");
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("a", "2", "11"))]).0, "a@12", "older");
}

#[test]
fn a_store_that_went_back_is_the_truth() {
    let before = |mirror: &mut Mirror<Unit>| {
        let made = [unit("a", "1", "3"), unit("b", "2", "4")];
        tell(
            mirror,
            [listing("4", &made), Change::Apply(unit("a", "1", "8")), Change::Delete(unit("b", "2", "9"))],
        );
        tell(mirror, [Change::Answer(unit("c", "3", "12"))]);
        mirror.epoch()
    };
    let old = [unit("a", "1", "3"), unit("b", "2", "4")];
    // Its own version went back; it was raised far beyond all; the server says so.
    for (version, incarnation) in [("5", None), ("1000", None), ("", Some("other")), ("10", Some("other"))] {
        let mut mirror = Mirror::default();
        let sent = before(&mut mirror);
        let objects = old.to_vec();
        let incarnation = incarnation.map(str::to_owned);
        let listing = Listing { objects, version: Version::parse(version), incarnation };
        let told = mirror.take::<Meta, Unit>(Change::Reset(listing), |unit, _| unit);
        assert!(told.restored, "{version:?}");
        assert_eq!(tell(&mut mirror, []).0, "a@3 b@4");
        mirror.answer::<Meta, Unit>(unit("a", "1", "11"), sent, |unit, _| unit);
        assert_eq!(tell(&mut mirror, []).0, "a@3 b@4", "the answer of a time that is no more");
        assert_eq!(
            tell(&mut mirror, [Change::Apply(unit("b", "2", "1001"))]).0,
            "a@3 b@1001",
            "b lives again"
        );
    }
}

#[test]
fn what_does_not_compare_with_a_listing_is_settled_by_the_next_one() {
    let mut mirror = Mirror::default();
    tell(&mut mirror, [listing("x", &[unit("old", "1", "a")]), Change::Listing]);
    tell(&mut mirror, [Change::Apply(unit("young", "2", "b")), Change::Apply(unit("went", "3", "c"))]);
    assert_eq!(tell(&mut mirror, [listing("y", &[])]).0, "went@c young@b", "it may be older than they are");
    assert_eq!(tell(&mut mirror, [Change::Listing, listing("z", &[unit("young", "2", "b")])]).0, "young@b");
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("went", "3", "d"))]).0, "young@b");
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("young", "2", "0"))]).0, "young@b", "perhaps older");
}

#[test]
fn a_listing_beside_the_feed_ends_and_shows_and_proves_no_more() {
    let (a, b, c) = (unit("a", "1", "1"), unit("b", "2", "2"), unit("c", "3", "7"));
    let beside = |version: &str, objects: &[Unit]| {
        let Change::Reset(listing) = listing(version, objects) else { unreachable!() };
        listing
    };
    let mut mirror = Mirror::default();
    tell(&mut mirror, [listing("2", &[a, b.clone()]), Change::Apply(unit("d", "4", "5"))]);
    mirror.check::<Meta, Unit>(beside("4", &[]), |unit, _| unit);
    assert_eq!(tell(&mut mirror, []).0, "a@1 b@2 d@5", "it came late");
    mirror.check::<Meta, Unit>(beside("8", &[b.clone(), c.clone()]), |unit, _| unit);
    assert_eq!(tell(&mut mirror, []).0, "b@2 c@7");
    // A listing of the feed that was taken before that one.
    let told = mirror.take::<Meta, Unit>(listing("6", &[unit("a", "1", "1"), b]), |unit, _| unit);
    assert!(!told.restored);
    assert_eq!(tell(&mut mirror, [Change::Answer(unit("a", "1", "8"))]).0, "b@2 c@7", "a has ended");
}
