//! Sends HTTP requests, none of them twice.

use std::fs;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, COOKIE, HeaderValue, SET_COOKIE};
use reqwest::{Certificate, ClientBuilder, Response, retry};
use url::{Host, Url};

use super::pinned::{self, Pin};
use super::trust::Trust;
use crate::error::{Error, Result};
use crate::method::Endpoint;

/// The longest accepted answer, in bytes. Answers about many objects have a few KiB of each. Hosts and operators with
/// rights on the objects write their content, guests do not ([`crate::Client::vms_with`]). So no guest can make a page
/// this long.
const LONGEST: usize = 64 << 20;
/// The time to connect for uploads. Other requests stop connecting after [`UNACKNOWLEDGED`], which Linux also applies
/// in SYN_SENT. A link with longer round trips gets no connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long sent data may be unacknowledged. Then the kernel ends the connection (tcp(7), `TCP_USER_TIMEOUT`), even a
/// closed one. Otherwise it would send a request in the buffer of a closed connection again.
///
/// A network that fails over for longer leaves each change under way in doubt: 15 to 20 s would outlast a firewall's
/// failover. That does not fit the lease: a successor waits 20 s (`MARGIN` of fleet) for requests of its predecessor. A
/// change is given up [`crate::CHANGE_LIMIT`] = 14 s after its permission and may arrive [`GONE`] = 4 + 1 s later: 14 +
/// 5 = 19 < 20. With 15 s here, 3 s would remain for a change, in which vCenter has to start a task. With 14 s for a
/// change, `MARGIN` would have to exceed 30 s. An earlier program that takes over waits 20 s: it would start while
/// requests of its predecessor may still arrive.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);
/// The time after giving up a request in which it may still arrive. Linux counts `TCP_USER_TIMEOUT` from the first
/// retransmission (`retrans_stamp` in net/ipv4/tcp_timer.c and tcp_output.c), which follows the first sending after a
/// time-out. The time-out is 0.2 to 0.4 s on a short link, and 1 s at first (RFC 6298). On a link whose round trip
/// takes half a second, it is 1.5 s. Users of this value add half a second for such a link.
pub const GONE: Duration = UNACKNOWLEDGED.saturating_add(Duration::from_secs(1));
/// vCenter's proxy ends idle connections after some time. A request on a connection that ends is lost, so connections
/// are not kept long.
const IDLE: Duration = Duration::from_secs(10);

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    uploads: reqwest::Client,
    /// `https://host[:port]/`.
    server: Url,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) cookie: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// The reason why no answer came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// No connection was made, so nothing was sent.
    Unreached(String),
    /// The request was sent, at least in part.
    Lost(String),
}

impl Transport {
    /// Connections to the server of an address, such as `vcenter.example.org` or `https://10.0.0.5:8443`. Connections
    /// to other machines use HTTPS only.
    pub(crate) fn new(address: &str, trust: &Trust) -> Result<Self> {
        let attempt = || format!("setting up connections to {address}");
        let server = server(address).map_err(|reason| Error::refused(attempt(), reason))?;
        let build = |builder: ClientBuilder| builder.build().map_err(|error| Error::refused(attempt(), chain(&error)));
        let uploads = build(trusting(trust)?)?;
        let http = build(trusting(trust)?.tcp_user_timeout(UNACKNOWLEDGED))?;
        Ok(Self { http, uploads, server })
    }

    pub(crate) fn server(&self) -> &Url {
        &self.server
    }

    /// The client for other requests to this server.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The client for uploads to this server. The datastore may pause for longer than [`UNACKNOWLEDGED`].
    pub(crate) fn uploads(&self) -> &reqwest::Client {
        &self.uploads
    }

    /// Sends the text of an envelope.
    pub(crate) fn post(
        &self,
        endpoint: Endpoint,
        cookie: Option<&str>,
        body: String,
        limit: Duration,
    ) -> impl Future<Output = std::result::Result<Answer, Failed>> + Send + use<> {
        let mut request = self.http.post(self.server.join(endpoint.path()).expect("a path")).timeout(limit).body(body);
        request = request.header(CONTENT_TYPE, "text/xml; charset=\"utf-8\"").header("SOAPAction", endpoint.action());
        if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(cookie).ok()) {
            request = request.header(COOKIE, cookie);
        }
        async move {
            let mut response = request.send().await.map_err(failed)?;
            let status = response.status().as_u16();
            let cookie = session_cookie(&response);
            let mut body = Vec::new();
            while let Some(part) = response.chunk().await.map_err(failed)? {
                if body.len() + part.len() > LONGEST {
                    return Err(Failed::Lost(format!("the answer is longer than {LONGEST} bytes")));
                }
                body.extend_from_slice(&part);
            }
            Ok(Answer { status, cookie, body })
        }
    }
}

/// A client builder with this trust only.
fn trusting(trust: &Trust) -> Result<ClientBuilder> {
    Ok(match trust {
        Trust::System => builder(),
        Trust::Authorities(file) => {
            let certificates = fs::read(file).map_err(|error| error.to_string()).and_then(|pem| authorities(&pem));
            let wrong = |reason| Error::refused(format!("reading the CA certificates in {}", file.display()), reason);
            builder().tls_certs_only(certificates.map_err(wrong)?)
        }
        Trust::Certificates(pem) => {
            let wrong = |reason| Error::refused("reading the given CA certificates", reason);
            builder().tls_certs_only(authorities(pem.as_bytes()).map_err(wrong)?)
        }
        Trust::Thumbprint(thumbprint) => pinned_builder(Pin::Sha256(thumbprint.0))?,
    })
}

fn authorities(pem: &[u8]) -> std::result::Result<Vec<Certificate>, String> {
    let certificates = Certificate::from_pem_bundle(pem).map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("there is no certificate in PEM".to_owned());
    }
    Ok(certificates)
}

/// A client for uploads to a server with a pinned certificate, without a proxy.
pub(crate) fn upload_client(pin: Pin) -> Result<reqwest::Client> {
    let wrong = |error: reqwest::Error| Error::refused("setting up connections for an upload", chain(&error));
    pinned_builder(pin)?.build().map_err(wrong)
}

fn pinned_builder(pin: Pin) -> Result<ClientBuilder> {
    let tls = pinned::only(pin).map_err(|error| Error::refused("setting up TLS", error))?;
    Ok(builder().tls_backend_preconfigured(tls))
}

fn builder() -> ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(CONNECTING).pool_idle_timeout(IDLE);
    // Only the caller, which knows the request's effect, may repeat it.
    builder.retry(retry::never()).redirect(reqwest::redirect::Policy::none())
}

fn server(address: &str) -> std::result::Result<Url, String> {
    let full = if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
    let mut url = Url::parse(&full).map_err(|error| error.to_string())?;
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) => false,
        None => return Err("it names no server".to_owned()),
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
        return Err(format!("{} is not spoken to a server elsewhere, only https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("user and password do not belong into the address".to_owned());
    }
    if !matches!(url.path(), "" | "/" | "/sdk" | "/sdk/") || url.query().is_some() || url.fragment().is_some() {
        return Err("an address is a host, and a port if it is another one than 443".to_owned());
    }
    url.set_path("/");
    Ok(url)
}

fn session_cookie(response: &Response) -> Option<String> {
    let said = response.headers().get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = said.filter_map(|value| value.split(';').next()).map(str::trim);
    pairs.rfind(|pair| pair.starts_with("vmware_soap_session=")).map(str::to_owned)
}

pub(crate) fn failed(error: reqwest::Error) -> Failed {
    let is_unreached = error.is_connect() || error.is_builder();
    let error = error.without_url();
    let words = chain(&error);
    if is_unreached { Failed::Unreached(words) } else { Failed::Lost(words) }
}

/// An error and its causes, without repeated texts.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut said, mut next) = (error.to_string(), error.source());
    while let Some(behind) = next {
        let words = behind.to_string();
        if !said.contains(&words) {
            said = format!("{said}: {words}");
        }
        next = behind.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_server_and_nothing_else() {
        for (address, expected) in [
            ("vcenter.example.org", "https://vcenter.example.org/"),
            ("https://10.0.0.5:8443/sdk", "https://10.0.0.5:8443/"),
            ("http://127.0.0.1:8989", "http://127.0.0.1:8989/"),
            ("[::1]:8443", "https://[::1]:8443/"),
        ] {
            assert_eq!(server(address).map(String::from), Ok(expected.to_owned()));
        }
        for (address, expected) in [
            ("", "empty host"),
            ("http://vcenter.example.org", "only https"),
            ("ftp://127.0.0.1", "only https"),
            ("https://me:pw@vcenter", "do not belong"),
            ("vcenter/ui", "a host, and a port"),
            ("vcenter?a", "a host, and a port"),
        ] {
            let reason = server(address).unwrap_err();
            assert!(reason.contains(expected), "{address}: {reason}");
        }
    }
}
