//! URLs of proxies and registries (RFC 3986).

use url::{Host, Url};

use super::super::value::Problem;
use super::addresses;
use crate::codes;
use crate::secret::Secret;

/// An http:// or https:// URL as it was written. With `credentials` it may
/// contain `user:password@`, and no path.
///
/// Messages never repeat the part before an `@`.
pub fn url(text: &str, credentials: bool) -> Result<String, Problem> {
    let action = action(credentials);
    let url = examine(text, action)?;
    if credentials && !matches!(url.path(), "" | "/") {
        return Err(problem(text, "has a path, which a proxy does not have", action));
    }
    if !credentials && (!url.username().is_empty() || url.password().is_some()) {
        return Err(problem(text, "has a user name or password before it", action));
    }
    Ok(text.to_owned())
}

/// The URL of a directory on a server, which may hold user name and password: as
/// it was written, and a secret therefore.
pub fn directory(text: &str) -> Result<Secret, Problem> {
    examine(text, "Give a URL such as https://backup.example.com/clusters/one/").map(|_| Secret::new(text.to_owned()))
}

fn problem(text: &str, why: impl AsRef<str>, action: &str) -> Problem {
    let shown = super::quoted(text.rsplit('@').next().unwrap_or(text));
    Problem::new(&codes::URL_MALFORMED, format!("{shown} {}", why.as_ref()), action)
}

/// The checks of all URLs.
fn examine(text: &str, action: &str) -> Result<Url, Problem> {
    let problem = |why: String| problem(text, why, action);
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(problem("has white space in it".into()));
    }
    let url = Url::parse(text).map_err(|error| problem(format!("is not a URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") || !text.contains("://") || text.contains(":///") {
        return Err(problem("does not begin with http:// or https:// and a host".into()));
    }
    match url.host() {
        Some(Host::Ipv4(address)) => {
            // The URL standard reads 10.1 as 10.0.0.1; people mean something else.
            if !text.contains(&address.to_string()) {
                return Err(problem(format!("would be read as the address {address}")));
            }
        }
        Some(Host::Ipv6(address)) => addresses::refuse_ipv6(&address.to_string())?,
        Some(Host::Domain(name)) if super::names::is_domain(name) => {}
        _ => return Err(problem("has no valid host name".into())),
    }
    if url.port() == Some(0) {
        return Err(problem("has port 0".into()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(problem("has a query or fragment, which makes no sense here".into()));
    }
    Ok(url)
}

fn action(credentials: bool) -> &'static str {
    if credentials {
        "Give a URL such as http://proxy.example.com:3128"
    } else {
        "Give a URL such as https://registry.example.com, without user name and password"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_stay_as_written() {
        for text in
            ["http://proxy.example.com:3128", "https://10.0.0.1:8080/", "http://user:p%40ss@proxy:3128", "HTTP://proxy"]
        {
            assert_eq!(url(text, true).as_deref(), Ok(text));
        }
        assert!(url("https://registry.example.com/mirror", false).is_ok());
    }

    #[test]
    fn bad_urls() {
        for text in [
            "proxy.example.com:3128",
            "proxy:3128",
            "socks5://proxy:1080",
            "http://",
            "http:///x",
            "http://pro xy",
            "http://proxy:99999",
            "http://proxy:0",
            "http://10.1:80",
            "http://proxy/path",
            "http://proxy?x",
            "http://bad_host",
            "http:proxy",
        ] {
            assert_eq!(url(text, true).unwrap_err().code.code, "url.malformed", "{text}");
        }
        assert_eq!(url("http://[fd00::1]:3128", true).unwrap_err().code.code, "property.ipv6");
    }

    #[test]
    fn a_directory_may_have_a_path_and_credentials() {
        for text in ["https://u:p@backup.example.com/clusters/one/", "http://10.0.0.9:8080", "https://backup/x"] {
            assert_eq!(directory(text).map(|directory| directory.expose().to_owned()).as_deref(), Ok(text));
        }
        for text in ["sftp://backup/x", "backup.example.com/x", "https://u:hunter2@backup/x?signature=1"] {
            let problem = directory(text).unwrap_err();
            assert_eq!(problem.code.code, "url.malformed", "{text}");
            assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
        }
    }

    #[test]
    fn messages_never_hold_a_password() {
        for (text, credentials) in
            [("http://u:hunter2@proxy/x", true), ("https://u:hunter2@reg", false), ("u:hunter2@", true)]
        {
            let problem = url(text, credentials).unwrap_err();
            assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
        }
    }
}
