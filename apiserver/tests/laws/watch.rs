//! A watch is the difference of two lists, and the pages of a list are one moment.

use crate::api::Api;
use crate::{cases, run};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Names that are written; few, so that they are changed and deleted often.
const NAMES: usize = 6;
/// Writes between two pages.
const BETWEEN_PAGES: usize = 8;

/// What a client holds: objects by name.
type Held = BTreeMap<String, Value>;

#[derive(Debug, Clone)]
enum Step {
    Put(usize, u8),
    Delete(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..NAMES, 0..3u8).prop_map(|(n, v)| Step::Put(n, v)),
        1 => (0..NAMES).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 1..24)
}

/// A namespace of its own for a case would be slow to go: names of a case share a label instead.
struct Case<'a> {
    api: &'a Api,
    path: String,
    id: String,
}

impl Case<'_> {
    fn query(&self, selector: &str) -> String {
        let own = format!("labelSelector=case%3D{}", self.id);
        match selector.strip_prefix("labels:") {
            Some(more) => format!("{own},{more}"),
            None if selector.is_empty() => own,
            None => format!("fieldSelector=metadata.name%3D{}-{selector}", self.id),
        }
    }

    async fn perform(&self, step: &Step) {
        match step {
            Step::Put(n, v) => {
                let name = format!("{}-m{n}", self.id);
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "labels": {"case": self.id, "even": (v % 2 == 0).to_string()}},
                    "data": {"v": v.to_string()}});
                let path = format!("{}/{name}?fieldManager=laws&force=true", self.path);
                let answer = self.api.patch(&path, "apply", map).await;
                assert!(answer.code < 300, "{}", answer.text);
            }
            Step::Delete(n) => {
                self.api.delete(&format!("{}/{}-m{n}", self.path, self.id), Value::Null).await;
            }
        }
    }

    /// A list with its revision; items as a client holds them.
    async fn list(&self, selector: &str) -> (u64, Held) {
        let list = self.api.get(&format!("{}?{}", self.path, self.query(selector))).await.expect(200);
        (list.rv().parse().unwrap(), held(&list.body))
    }

    /// Applies all events after a revision until one that every selector sees.
    async fn follow(&self, from: u64, selector: &str, held: &mut Held, until: u64) {
        let query = self.query(selector);
        let path = format!("{}?watch=true&resourceVersion={from}&timeoutSeconds=60&{query}", self.path);
        let mut watch = self.api.watch(&path).await;
        let mut last = from;
        while last < until {
            let event = watch.next().await.expect("the watch goes on");
            let object = &event["object"];
            let rv: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            assert!(rv > last, "{rv} after {last}");
            last = rv;
            let name = object["metadata"]["name"].as_str().unwrap().to_string();
            match event["type"].as_str().unwrap() {
                "ADDED" => assert!(held.insert(name, object.clone()).is_none(), "{event}"),
                "MODIFIED" => assert!(held.insert(name, object.clone()).is_some(), "{event}"),
                "DELETED" => assert!(held.remove(&name).is_some(), "{event}"),
                other => panic!("{other}"),
            }
        }
    }
}

fn held(list: &Value) -> Held {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|o| {
            // Items of a list of a built-in kind carry neither; objects of events do.
            let mut o = o.clone();
            (o["kind"], o["apiVersion"]) = (json!("ConfigMap"), json!("v1"));
            (o["metadata"]["name"].as_str().unwrap().to_string(), o)
        })
        .collect()
}

async fn one_case(api: &Api, before: Vec<Step>, between: Vec<Step>, during: Vec<Step>) {
    let case = Case { api, path: api.core("configmaps"), id: crate::fresh() };
    for step in &before {
        case.perform(step).await;
    }
    let mut stores = Vec::new();
    for selector in ["", "labels:even%3Dtrue", "labels:even%21%3Dfalse", "m1"] {
        stores.push((selector, case.list(selector).await));
    }
    for step in &between {
        case.perform(step).await;
    }
    // The last write is one that every selector sees: m1, even, with a number nobody wrote before.
    let last = case.list("").await.0;
    case.perform(&Step::Put(1, 1)).await;
    case.perform(&Step::Put(1, 100)).await;
    let m1 = api.get(&format!("{}/{}-m1", case.path, case.id)).await.expect(200).rv().parse().unwrap();
    assert!(m1 > last);
    for (selector, (from, mut held)) in stores {
        case.follow(from, selector, &mut held, m1).await;
        assert_eq!(held, case.list(selector).await.1, "watch and list differ with {selector:?}");
    }

    let (_, moment) = case.list("").await;
    let (mut pages, mut token, mut steps) = (Held::new(), String::new(), during.iter());
    loop {
        let path = format!("{}?limit=2&continue={token}&{}", case.path, case.query(""));
        let page = api.get(&path).await.expect(200).body;
        pages.append(&mut held(&page));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
        if token.is_empty() {
            break;
        }
        for step in steps.by_ref().take(BETWEEN_PAGES) {
            case.perform(step).await;
        }
    }
    assert_eq!(pages, moment, "pages are one moment whatever is written between them");
    let query = case.query("");
    api.delete(&format!("{}?{query}", case.path), Value::Null).await.expect(200);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_watch_is_the_difference_of_two_lists_and_pages_are_one_moment(
        before in steps(), between in steps(), during in steps()
    ) {
        run(async |api| one_case(api, before, between, during).await);
    }
}
