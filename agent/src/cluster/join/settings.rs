//! The settings that a tenant cluster's control-plane nodes publish for its workers: a Secret that only nodes may read. Workers of
//! pools take them over. They are properties that both kinds of nodes have, with the values of the node that publishes them.

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::configure::Properties;
use contract::properties::{self, Property};
use contract::role::Role;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::intake::config::{Config, ControlPlane};

/// The Secret's name, in the namespace [`NAMESPACE`].
pub const NAME: &str = "kaas-worker-settings";
pub const NAMESPACE: &str = "kube-system";

/// The key of the settings in the Secret.
const KEY: &str = "settings.json";

fn is_shared(property: &Property) -> bool {
    let has_both = [Role::TenantControlPlane, Role::Worker].into_iter().all(|role| property.need(role).is_some());
    has_both && property.changeable && !property.spec.is_empty()
}

/// The settings for workers. An unset one is empty.
pub fn of(config: &ControlPlane) -> Properties {
    let own = Config::ControlPlane(config.clone()).properties(None);
    let value = |key: &str| own.iter().find(|(own, _)| *own == key).map(|(_, text)| text.clone()).unwrap_or_default();
    let shared = properties::table().iter().filter(|property| is_shared(property));
    Properties { properties: shared.map(|property| (property.key.to_owned(), value(property.key))).collect() }
}

/// The Secret with settings.
pub fn object(settings: &Properties) -> Value {
    let mut object = reference();
    let text = Zeroizing::new(json!(settings).to_string());
    object["data"] = json!({KEY: BASE64_STANDARD.encode(text.as_bytes())});
    object
}

/// The Secret by kind and name only.
pub fn reference() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": NAMESPACE}})
}

/// The settings in the Secret that this image can take over. A later image may publish others.
pub fn read(object: &Value) -> anyhow::Result<Properties> {
    let text = object["data"][KEY].as_str().with_context(|| format!("the Secret {NAME} has no {KEY}"))?;
    let text = Zeroizing::new(BASE64_STANDARD.decode(text).with_context(|| format!("decoding the Secret {NAME}"))?);
    let mut settings: Properties =
        serde_json::from_slice(&text).with_context(|| format!("understanding the Secret {NAME}"))?;
    settings.properties.retain(|key, _| properties::find(key).is_some_and(is_shared));
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    #[test]
    fn published_settings_are_read_without_later_ones() {
        let mut config = in_a_tenant(three_nodes());
        config.node.ntp_servers = vec!["ntp.example.com".to_owned()];
        let settings = of(&config);
        let value = |key: &str| settings.properties.get(key).map(String::as_str);
        assert_eq!((value("ntp-servers"), value("http-proxy")), (Some("ntp.example.com"), Some("")));
        assert_eq!((value("pod-security"), value("gateway"), value("join-token")), (None, None, None));
        assert_eq!(read(&object(&settings)).unwrap(), settings);
        let mut later = settings.clone();
        // A control-plane node that was taken over must not change other properties of workers.
        later
            .properties
            .extend([("later", "1"), ("gateway", "10.0.0.9")].map(|(key, it)| (key.to_owned(), it.to_owned())));
        assert_eq!(read(&object(&later)).unwrap(), settings);
        assert!(read(&reference()).is_err());
    }
}
