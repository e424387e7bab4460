//! Virtual IPs of services: MetalLB in layer 2.

use contract::ports::{MEMBERLIST, SPEAKER_METRICS};
use contract::properties::AddressRange;
use serde_json::Value;

use super::manifest;
use crate::cluster::pod_network::desired::{DEVICE, PODS};

/// The kinds of objects that MetalLB knows, in the image.
pub(super) const KINDS: &str = "/usr/lib/kaas/add-ons/metallb-kinds.yaml";
pub(super) const CONTROLLER_IMAGE: &str = "metallb-controller";
pub(super) const SPEAKER_IMAGE: &str = "metallb-speaker";

pub(super) fn objects(addresses: &[AddressRange]) -> Vec<Value> {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    manifest::objects(
        include_str!("metallb.yaml"),
        [
            ("METRICS_PORT", SPEAKER_METRICS.into()),
            ("MEMBERLIST_PORT", MEMBERLIST.to_string().into()),
            ("DEVICES", excluded().into()),
            ("ADDRESSES", addresses.into()),
        ],
    )
}

/// Devices of pods and of the node itself, as regular expressions: speakers announce nothing on them.
fn excluded() -> Vec<String> {
    let exact = |name: &str| format!("^{}$", name.replace('.', "\\."));
    vec![exact("lo"), exact(DEVICE), format!("^{}", PODS.replace('*', ".*"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_of_a_speaker_is_opened() {
        let objects = objects(&[]);
        let speaker = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        let pod = &speaker["spec"]["template"]["spec"];
        assert!(pod["containers"][0].get("ports").is_none() && pod["hostNetwork"] == true);
    }

    #[test]
    fn speakers_announce_nothing_to_pods() {
        assert_eq!(excluded(), ["^lo$", "^kaas\\.vxlan$", "^veth.*"]);
    }
}
