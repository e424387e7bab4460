//! For tests: a JSON server on loopback, over real TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustls::server::WebPkiClientVerifier;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::host::tls;

/// Answers a path and a body with a status code and a body.
pub(crate) type Answer = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// The same for the user of a client certificate.
pub(crate) type AnswerUser = dyn Fn(&str, &str, &Value) -> (u16, Value) + Send + Sync;

/// Serves with the certificate and key `<base>.crt` and `<base>.key`. It reads them for each connection.
pub(crate) fn serve(address: SocketAddr, base: &Path, answer: Box<Answer>) {
    serve_with(address, base, None, Box::new(move |_, path, body| answer(path, body)));
}

/// The same for clients with a certificate of the CA in the file `authority`.
pub(crate) fn serve_users(address: SocketAddr, base: &Path, authority: &Path, answer: Box<AnswerUser>) {
    serve_with(address, base, Some(authority.to_owned()), answer);
}

fn serve_with(address: SocketAddr, base: &Path, authority: Option<PathBuf>, answer: Box<AnswerUser>) {
    let (certificate, key) = (base.with_extension("crt"), base.with_extension("key"));
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Without keys no client is served.
            let Some(tls) = configuration(&certificate, &key, authority.as_deref()) else { continue };
            let session = rustls::ServerConnection::new(Arc::new(tls)).unwrap();
            let _ = exchange(&answer, rustls::StreamOwned::new(session, stream));
        }
    });
}

fn configuration(certificate: &Path, key: &Path, authority: Option<&Path>) -> Option<rustls::ServerConfig> {
    let chain = tls::certificates(&std::fs::read_to_string(certificate).ok()?).ok()?;
    let key = tls::key(&std::fs::read_to_string(key).ok()?).ok()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
    let tls = tls.with_safe_default_protocol_versions().unwrap();
    let tls = match authority {
        None => tls.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(tls::trust_in(&std::fs::read_to_string(authority).ok()?).ok()?);
            let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build().ok()?;
            tls.with_client_cert_verifier(clients)
        }
    };
    tls.with_single_cert(chain, key).ok()
}

/// The user of the client's certificate. Empty without one.
fn user(connection: &rustls::ServerConnection) -> String {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let Some((_, certificate)) = shown.and_then(|shown| X509Certificate::from_der(shown).ok()) else {
        return String::new();
    };
    let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.next().unwrap_or_default().to_owned()
}

fn exchange(
    answer: &AnswerUser,
    stream: rustls::StreamOwned<rustls::ServerConnection, TcpStream>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let user = user(&stream.get_ref().conn);
    let (code, said) = answer(&user, path, &serde_json::from_slice(&body).unwrap_or_default());
    let said = said.to_string();
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.0 {code} So\r\nContent-Length: {}\r\n\r\n{said}", said.len())?;
    stream.conn.send_close_notify();
    stream.flush()
}
