//! Bounds on connections: anybody may connect, and an HTTP server lives in processes that have other things
//! to do.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Most connections at a time. More wait until one of these has ended.
const MOST_CONNECTIONS: usize = 64;
/// A connection that takes longer to its next answer, or to take that, is closed. Bytes that come in don't
/// prolong it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener whose connections are few, and end when nothing is answered there.
pub(crate) struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl<L> Bounded<L> {
    pub(crate) fn new(listener: L) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MOST_CONNECTIONS)), patience: PATIENCE }
    }
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Connection<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // It is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = self.listener.accept().await;
        let end = Box::pin(sleep(self.patience));
        (Connection { stream, end, patience: self.patience, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing is answered there.
pub(crate) struct Connection<S> {
    stream: S,
    end: Pin<Box<Sleep>>,
    patience: Duration,
    _place: Option<OwnedSemaphorePermit>,
}

impl<S> Connection<S> {
    /// What has come of the stream; an error where nothing has for too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        of_stream: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        of_stream
    }

    fn answered(&mut self) {
        let end = Instant::now() + self.patience;
        self.end.as_mut().reset(end);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.bounded(context, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.answered();
        }
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::Router;
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn more_connections_than_there_are_places_get_their_turn_when_idle_ones_have_been_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let bounded = Bounded::new(TcpListener::from_std(listener).unwrap());
                let bounded = Bounded { patience: Duration::from_millis(200), ..bounded };
                axum::serve(bounded, Router::new().route("/", get(|| async { "here" }))).await
            })
        });
        let mut idle: Vec<TcpStream> =
            (0..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();

        let mut late = TcpStream::connect(address).unwrap();
        late.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        late.read_to_string(&mut answer).unwrap();

        assert!(answer.ends_with("here"), "{answer}");
        // Closed, whatever the end is called.
        assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
    }
}
