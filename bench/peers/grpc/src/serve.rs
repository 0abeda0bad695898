//! The server: it answers every call of `ECHO` with the bytes that came, and takes the stream of a call of `DRAIN`.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use crate::plain::Plain;

/// A unary call that comes back with the same bytes.
pub(crate) const ECHO: &str = "/peer.Peer/Echo";
/// A call with a stream of messages, answered when all have come.
pub(crate) const DRAIN: &str = "/peer.Peer/Drain";
/// A unary call after which the server waits in the kernel where it has nothing to do.
pub(crate) const WAIT: &str = "/peer.Peer/Wait";
/// A unary call after which the server ends.
pub(crate) const END: &str = "/peer.Peer/End";
/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 8 << 20;

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where a server listens.
pub(crate) enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// What tonic connects to.
    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp),
        }
    }
}

/// Serves at this address until it is told to end. `spinning` is the task that keeps it from waiting.
///
/// # Errors
/// If nobody can listen there, and what tonic reports.
pub(crate) async fn serve(address: Address, spinning: AbortHandle) -> Result<(), Box<dyn Error + Send + Sync>> {
    let ending = Arc::new(Notify::new());
    let calls = Calls { ending: Arc::clone(&ending), spinning };
    let end = async move { ending.notified().await };
    match address {
        Address::Tcp(address) => Server::builder().serve_with_shutdown(address, calls, end).await?,
        Address::Unix(path) => {
            let incoming = UnixListenerStream::new(UnixListener::bind(path)?);
            Server::builder().serve_with_incoming_shutdown(calls, incoming, end).await?;
        }
    }
    Ok(())
}

/// Every call by its path.
#[derive(Clone)]
struct Calls {
    ending: Arc<Notify>,
    spinning: AbortHandle,
}

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path() {
            WAIT => self.spinning.abort(),
            END => self.ending.notify_one(),
            _ => {}
        }
        let mut grpc = Grpc::new(Plain).max_decoding_message_size(LONGEST);
        Box::pin(async move {
            Ok(match request.uri().path() {
                DRAIN => grpc.client_streaming(Drain, request).await,
                _ => grpc.unary(Echo, request).await,
            })
        })
    }
}

#[derive(Clone)]
struct Echo;

impl Service<Request<Vec<u8>>> for Echo {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner().into())))
    }
}

#[derive(Clone)]
struct Drain;

impl Service<Request<Streaming<Vec<u8>>>> for Drain {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = Later<Result<Response<Bytes>, Status>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        Box::pin(async move {
            let mut messages = request.into_inner();
            let mut count = 0_u64;
            while messages.message().await?.is_some() {
                count += 1;
            }
            Ok(Response::new(Bytes::copy_from_slice(&count.to_le_bytes())))
        })
    }
}
