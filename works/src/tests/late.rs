//! Creates that arrive after they were given up.

use std::sync::atomic::{AtomicUsize, Ordering};

use fleet_informer::Source;
use kube::{Client, client::Body};

use super::*;

const ON_ITS_WAY: Duration = Duration::from_secs(2);

const SENT: usize = 1;
const ARRIVED: usize = 2;

async fn reach(stage: &AtomicUsize, wanted: usize) {
    while stage.load(Ordering::SeqCst) < wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A client whose first create of a job has no answer, and arrives after [`ON_ITS_WAY`]; later ones do not arrive at all.
fn with_a_late_create(client: Client, stage: Arc<AtomicUsize>) -> Client {
    let through = tower::service_fn(move |request: http::Request<Body>| {
        let (client, stage) = (client.clone(), stage.clone());
        async move {
            if request.method() != http::Method::POST || !request.uri().path().ends_with("/pytorchjobs") {
                return client.send(request).await;
            }
            if stage.compare_exchange(0, SENT, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                tokio::spawn(async move {
                    tokio::time::sleep(ON_ITS_WAY).await;
                    client.send(request).await.expect("an answer");
                    stage.store(ARRIVED, Ordering::SeqCst);
                });
            }
            let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            Err(kube::Error::Service(Box::new(lost)))
        }
    });
    Client::new(through, "default")
}

#[tokio::test]
async fn a_run_is_not_over_before_its_create_can_have_arrived() {
    let fixture = Fixture::new(&[]).await;
    let stage = Arc::new(AtomicUsize::new(0));
    let client = with_a_late_create(fixture.member.clone(), stage.clone());
    let holds = run_over(&fixture, Link::new(client, Source::unasked("east"), "east"), Permits::default());
    let fixture = Bed { fixture, holds };
    submit(&fixture, work("w", 1, vec![job()])).await;
    reach(&stage, SENT).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(ON_ITS_WAY / 2).await;
    assert!(works(&fixture).get_opt("w").await.unwrap().is_some(), "its job may still arrive");
    reach(&stage, ARRIVED).await;
    fixture.wait(&fixture.of_member("pytorchjobs"), "a", "removed", |job| job.is_none()).await;
}
