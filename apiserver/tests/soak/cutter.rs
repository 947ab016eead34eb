//! A relay in front of a server that cuts its connections at random, mid-line where it happens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Shortest and longest life of a connection.
const LIFE_MS: std::ops::Range<u64> = 30..1500;

/// The relay; it cuts until it is told to be kind.
pub struct Cutter {
    /// Where clients connect.
    pub address: SocketAddr,
    kind: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
}

/// A number from a random id; the tests need no seed, since they judge what they see.
pub fn random(range: std::ops::Range<u64>) -> u64 {
    range.start + uuid::Uuid::new_v4().as_u128() as u64 % (range.end - range.start)
}

impl Cutter {
    /// Starts a relay to `host:port`.
    pub async fn start(to: String) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (kind, cuts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (calm, count) = (kind.clone(), cuts.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (to, calm, count) = (to.clone(), calm.clone(), count.clone());
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(&to).await else { return };
                    let cut = async {
                        loop {
                            tokio::time::sleep(Duration::from_millis(random(LIFE_MS))).await;
                            if !calm.load(Ordering::Relaxed) {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        () = cut => {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        Cutter { address, kind, cuts }
    }

    /// Cuts no more.
    pub fn spare(&self) {
        self.kind.store(true, Ordering::Relaxed);
    }

    /// Connections cut so far.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}
