//! The NodeImage of a verified OVA. Pure.

use anyhow::ensure;
use controller::objects::{GROUP, VERSION};
use fleet::upgrade::Target;
use serde_json::{Value, json};

use crate::control::text;

/// A NodeImage: its spec, and the status that comes from the OVA.
#[derive(Debug, PartialEq)]
pub struct NodeImage {
    pub name: String,
    /// The object with the spec: digest and publisher.
    pub object: Value,
    /// The object with the status, as the OVA states it. This command writes it, because it has verified the OVA: settings of
    /// templates can be changed.
    pub status: Value,
}

impl NodeImage {
    /// Builds the NodeImage of an OVA. Its name is `named`, or appliance and version. Fails if that is no name of an
    /// object.
    pub fn of(target: &Target, named: Option<&str>) -> anyhow::Result<Self> {
        let own = || format!("{}-{}", target.name, target.image.version);
        let name = named.map_or_else(own, str::to_owned);
        let is_name = crate::control::name(&name);
        ensure!(is_name.is_ok(), "{name:?} is no name of a NodeImage: give another one with --name");
        let object = |part: &str, value: Value| {
            json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "NodeImage",
                "metadata": {"name": name},
                part: value,
            })
        };
        let mut spec = json!({"digest": format!("sha256:{}", target.digest)});
        if let Some(signer) = &target.signer {
            spec["publisher"] = signer.as_str().into();
        }
        let mut status = json!({
            "appliance": target.name,
            "version": target.image.version,
            "build": target.image.build,
            "kubernetes": target.kubernetes,
        });
        if let Some(etcd) = target.etcd {
            status["etcd"] = etcd.to_string().into();
        }
        if let Some(from) = &target.upgrades_from {
            status["upgradesFrom"] = from.to_string().into();
        }
        Ok(Self { object: object("spec", spec), status: object("status", status), name })
    }

    /// Checks that an existing object of this name is of the same image.
    pub fn may_take_the_place_of(&self, there: &Value) -> anyhow::Result<()> {
        for field in ["/spec/digest", "/spec/publisher"] {
            let (is, own) = (text(there, field), text(&self.object, field));
            ensure!(
                is == own,
                "the NodeImage {} is of another image already, whose {} is {is:?} and not {own:?}: give another name with --name",
                self.name,
                field.trim_start_matches("/spec/")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use contract::swap::Image;

    use super::super::TENANT;
    use super::*;

    /// A verified image.
    pub fn target(signer: Option<&str>) -> Target {
        Target {
            ova: "images/kaas-tenant-0.2.0.ova".into(),
            digest: "0a".repeat(32),
            name: TENANT.to_owned(),
            image: Image { version: "0.2.0".to_owned(), build: "0b".repeat(16) },
            upgrades_from: Some(">=0.1.0".parse().unwrap()),
            etcd: Some("3.6".parse().unwrap()),
            kubernetes: vec!["1.36".to_owned(), "1.35".to_owned()],
            signer: signer.map(str::to_owned),
        }
    }

    #[test]
    fn node_image_has_digest_publisher_and_ova_facts() {
        let image = NodeImage::of(&target(Some("sha256:0c")), None).unwrap();
        assert_eq!(image.name, "kaas-tenant-0.2.0");
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(image.object["spec"], json!({"digest": digest, "publisher": "sha256:0c"}));
        let read: controller::objects::NodeImage = serde_json::from_value({
            let mut both = image.object.clone();
            both["status"] = image.status["status"].clone();
            both
        })
        .unwrap();
        let status = read.status.unwrap();
        assert_eq!(status.appliance.as_deref(), Some("kaas-tenant"));
        assert_eq!((status.version.as_deref(), status.etcd.as_deref()), (Some("0.2.0"), Some("3.6")));
        assert_eq!(status.kubernetes, ["1.36", "1.35"]);
        assert_eq!((status.upgrades_from.as_deref(), status.build), (Some(">=0.1.0"), Some("0b".repeat(16))));
        assert!(NodeImage::of(&target(None), Some("a_b")).is_err());
        assert_eq!(NodeImage::of(&target(None), Some("mine")).unwrap().object["spec"], json!({ "digest": digest }));
    }

    #[test]
    fn name_of_another_image_is_rejected() {
        let signed = NodeImage::of(&target(Some("sha256:0c")), None).unwrap();
        let unsigned = NodeImage::of(&target(None), None).unwrap();
        signed.may_take_the_place_of(&signed.object).unwrap();
        unsigned.may_take_the_place_of(&unsigned.object).unwrap();
        for (new, there) in [(&signed, &unsigned), (&unsigned, &signed)] {
            let refused = new.may_take_the_place_of(&there.object).unwrap_err().to_string();
            assert!(refused.contains("is of another image already, whose publisher"), "{refused}");
        }
    }
}
