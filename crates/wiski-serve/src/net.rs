//! Connections: accepted up to a number, given so long to say what they want, ended with care.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::engine::Engine;
use crate::routes::app;

/// How long a client may take for the head of a request, and a connection may be idle before it.
const HEAD: Duration = Duration::from_secs(30);
/// How long requests may go on once the server stops.
const GRACE: Duration = Duration::from_secs(10);
/// How long a client may take to agree on encryption.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How connections are encrypted.
#[derive(Clone, Default)]
pub struct Encryption {
    #[cfg(feature = "tls")]
    acceptor: Option<tokio_rustls::TlsAcceptor>,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_on() { "TLS" } else { "none" })
    }
}

impl Encryption {
    /// TLS with the certificates and the key in these PEM files.
    #[cfg(feature = "tls")]
    pub fn tls(certificates: &std::path::Path, key: &std::path::Path) -> std::io::Result<Self> {
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use tokio_rustls::rustls::{ServerConfig, crypto};
        let wrong = |path: &std::path::Path, what: String| {
            std::io::Error::other(format!("{}: {what}", path.display()))
        };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| wrong(certificates, e.to_string()))?;
        let own = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e.to_string()))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, own))
            .map_err(|e| wrong(certificates, e.to_string()))?;
        Ok(Self { acceptor: Some(Arc::new(config).into()) })
    }

    /// Whether connections are encrypted.
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.acceptor.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// Serves an engine until `stop` is done; then requests are finished, models written down, and this returns.
pub async fn serve(
    engine: Arc<Engine>,
    listener: TcpListener,
    encryption: Encryption,
    stop: impl Future<Output = ()>,
) {
    let router = app(Arc::clone(&engine));
    let permits = Arc::new(Semaphore::new(engine.config.limits.connections));
    let graceful = GracefulShutdown::new();
    tokio::spawn(Engine::keep_tidy(Arc::downgrade(&engine)));
    let mut stop = std::pin::pin!(stop);
    loop {
        // Beyond the limit connections wait to be accepted.
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, say; it passes.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (router, encryption, watcher) = (router.clone(), encryption.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _permit = permit;
            connection(stream, peer, router, encryption, watcher).await;
        });
    }
    drop(listener);
    tracing::info!("stopping");
    engine.stop();
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were not finished in time");
    }
    engine.close().await;
    tracing::info!("stopped");
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    encryption: Encryption,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small and whole.
    let _ = stream.set_nodelay(true);
    #[cfg(feature = "tls")]
    if let Some(acceptor) = encryption.acceptor {
        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
            requests(stream, router, watcher).await;
        } else {
            tracing::debug!(%peer, "no handshake");
        }
        return;
    }
    let _ = (encryption, peer);
    requests(stream, router, watcher).await;
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = TowerToHyperService::new(router);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(64 << 10).max_headers(64);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is no event.
    let _ = watcher.watch(connection).await;
}
