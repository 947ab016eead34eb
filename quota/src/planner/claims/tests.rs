use super::first_that_fits;

#[test]
fn the_first_that_fits_is_found_from_wherever_the_search_begins() {
    for all in 0..12 {
        for first in 0..=all + 1 {
            for near in 0..14 {
                let found = first_that_fits(all, near, |count| {
                    assert!(count <= all);
                    count >= first
                });
                assert_eq!(found, (first <= all).then_some(first), "{all} {first} {near}");
            }
        }
    }
}
