//! A TCP proxy between two processes, whose connections can be cut.

use std::{io, net::SocketAddr};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Open,
    /// Those that stand are dropped, new ones are closed at once.
    Cut,
    /// Those that stand and new ones carry nothing.
    Silent,
}

/// Listens on a port of the loopback address and carries everything to one other.
pub struct Proxy {
    pub address: SocketAddr,
    line: watch::Sender<Line>,
}

impl Proxy {
    /// Begins to listen.
    ///
    /// # Errors
    /// No port is free.
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (line, state) = watch::channel(Line::Open);
        tokio::spawn(async move {
            let mut over = state.clone();
            loop {
                tokio::select! {
                    biased;
                    // The proxy was dropped.
                    _ = async { while over.changed().await.is_ok() {} } => return,
                    accepted = listener.accept() => {
                        let Ok((socket, _)) = accepted else { continue };
                        tokio::spawn(carry(socket, target, state.clone()));
                    }
                }
            }
        });
        Ok(Self { address, line })
    }

    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }
}

/// Carries one connection until an end closes it or the line is cut.
async fn carry(mut from: TcpStream, target: SocketAddr, mut line: watch::Receiver<Line>) {
    // A line that was silent does not come back to life: both ends would go on in the middle.
    let mut to: Option<TcpStream> = None;
    loop {
        let state = *line.borrow_and_update();
        match state {
            Line::Cut => return,
            Line::Silent => {
                if line.changed().await.is_err() {
                    return;
                }
                if to.is_some() {
                    return;
                }
            }
            Line::Open => {
                let connected = match to.take() {
                    Some(connected) => connected,
                    None => match TcpStream::connect(target).await {
                        Ok(connected) => connected,
                        Err(_) => return,
                    },
                };
                let mut connected = connected;
                tokio::select! {
                    biased;
                    changed = line.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        to = Some(connected);
                    }
                    // Whatever ended it, both ends are closed.
                    _ = tokio::io::copy_bidirectional(&mut from, &mut connected) => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_line_carries_until_it_is_cut() {
        let echo = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let target = echo.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = socket.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let proxy = Proxy::to(target).await.expect("listens");
        let ask = async |socket: &mut TcpStream| -> io::Result<u8> {
            socket.write_all(&[7]).await?;
            socket.read_u8().await
        };
        let mut one = TcpStream::connect(proxy.address).await.expect("connects");
        assert_eq!(ask(&mut one).await.expect("an echo"), 7);
        proxy.set(Line::Cut);
        assert!(ask(&mut one).await.is_err(), "what stood is dropped");
        proxy.set(Line::Silent);
        let mut two = TcpStream::connect(proxy.address).await.expect("connects");
        let silent = tokio::time::timeout(Duration::from_millis(100), ask(&mut two)).await;
        assert!(silent.is_err(), "nothing is carried");
        proxy.set(Line::Open);
        let mut three = TcpStream::connect(proxy.address).await.expect("connects");
        assert_eq!(ask(&mut three).await.expect("an echo"), 7);
    }
}
