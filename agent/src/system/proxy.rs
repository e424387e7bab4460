//! The proxy for downloads of the node itself: an environment file that containerd's unit and the agent read.

use std::fmt::Write as _;

use anyhow::Context;

use crate::host::files::{self, ensure_content};
use crate::host::platform::Platform;
use crate::intake::config::Config;

/// The environment file. It does not exist without a proxy.
pub const FILE: &str = "/run/kaas/proxy.env";

pub fn ensure(platform: &Platform, config: &Config) -> anyhow::Result<bool> {
    let path = platform.path(FILE);
    let result = match environment(config) {
        // Only root may read it, because a proxy's URL may contain a password.
        Some(text) => ensure_content(&path, text.as_bytes(), 0o600),
        None => files::remove(&path),
    };
    result.with_context(|| format!("writing {}", path.display()))
}

/// systemd.exec(5), EnvironmentFile: within double quotes only backslash, double quote, backtick and dollar need a
/// backslash. A percent sign needs none.
fn environment(config: &Config) -> Option<String> {
    let proxy = config.node().proxy.as_ref()?;
    let direct = direct(config, &proxy.exclusions).join(",");
    let given = [("HTTP_PROXY", proxy.http.as_deref()), ("HTTPS_PROXY", proxy.https.as_deref())];
    let values = given.into_iter().filter_map(|(name, value)| Some((name, value?))).chain([("NO_PROXY", &*direct)]);
    let mut text = String::new();
    for (name, value) in values {
        let mut quoted = String::new();
        for character in value.chars() {
            if matches!(character, '\\' | '"' | '`' | '$') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        let _ = writeln!(text, "{name}=\"{quoted}\"\n{}=\"{quoted}\"", name.to_lowercase());
    }
    Some(text)
}

/// Destinations that bypass the proxy: this host, the cluster and the configured exclusions.
fn direct(config: &Config, exclusions: &[String]) -> Vec<String> {
    let mut direct = vec!["localhost".to_owned(), "127.0.0.0/8".to_owned()];
    direct.extend(
        config.node().interfaces.iter().filter_map(|interface| Some(interface.address.known()?.trunc().to_string())),
    );
    direct.extend(config.control_nodes().iter().map(|node| node.address.to_string()));
    direct.extend(config.virtual_address().map(|address| address.to_string()));
    let api = config.api_address().to_string();
    if !direct.contains(&api) {
        direct.push(api);
    }
    if let Some(network) = config.network() {
        direct.extend([network.pod_cidr.to_string(), network.service_cidr.to_string()]);
    }
    direct.extend([".svc".to_owned(), ".cluster.local".to_owned()]);
    for exclusion in exclusions {
        if !direct.contains(exclusion) {
            direct.push(exclusion.clone());
        }
    }
    direct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::Proxy;
    use crate::system::network::tests::config;

    #[test]
    fn cluster_bypasses_proxy_and_special_characters_are_escaped() {
        let mut config = config();
        config.node.proxy = Some(Proxy {
            http: Some("http://user:a$b\"c%20@proxy.example:3128".into()),
            https: None,
            exclusions: vec![".example".into(), ".svc".into()],
        });
        let text = environment(&Config::ControlPlane(config)).unwrap();
        assert!(text.starts_with("HTTP_PROXY=\"http://user:a\\$b\\\"c%20@proxy.example:3128\"\nhttp_proxy="), "{text}");
        assert!(!text.contains("HTTPS_PROXY"));
        let direct = "localhost,127.0.0.0/8,10.0.0.0/24,10.0.0.11,10.0.0.12,10.0.0.13,10.0.0.10,10.244.0.0/16,\
                      10.96.0.0/16,.svc,.cluster.local,.example";
        assert!(text.ends_with(&format!("NO_PROXY=\"{direct}\"\nno_proxy=\"{direct}\"\n")), "{text}");
    }

    #[test]
    fn file_is_missing_without_a_proxy() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        let without = config();
        let mut config = config();
        config.node.proxy = Some(Proxy { http: None, https: Some("http://p".into()), exclusions: vec![] });
        let config = Config::ControlPlane(config);
        assert!(ensure(&platform, &config).unwrap());
        assert!(!ensure(&platform, &config).unwrap());
        let config = Config::ControlPlane(without);
        assert!(ensure(&platform, &config).unwrap());
        assert!(!ensure(&platform, &config).unwrap());
        assert!(!platform.path(FILE).exists());
    }
}
