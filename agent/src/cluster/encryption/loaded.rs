//! The configuration that this node's API server has loaded. Its metrics name it by the SHA-256 of the file:
//! `apiserver_encryption_config_controller_last_config_info`.

use std::net::Ipv4Addr;

use anyhow::Context as _;

use crate::cluster::kubernetes::api;
use crate::cluster::kubernetes::api_server::encryption_configuration;
use crate::host::command::Runner;

const METRIC: &str = "apiserver_encryption_config_controller_last_config_info{";

pub fn has_loaded(runner: &dyn Runner, address: Ipv4Addr, content: &[u8]) -> anyhow::Result<bool> {
    let ask = api::kubectl(address).args(["get", "--raw", "/metrics"]);
    let metrics = runner.run(&ask).context("asking the API server which encryption keys it has loaded")?;
    Ok(tells(&String::from_utf8_lossy(&metrics), &encryption_configuration::sum(content)))
}

fn tells(metrics: &str, sum: &str) -> bool {
    let named = format!("hash=\"sha256:{sum}\"");
    let labels = metrics.lines().filter_map(|line| line.strip_prefix(METRIC)?.split('}').next());
    labels.flat_map(|labels| labels.split(',')).any(|label| label == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_server_names_its_loaded_configuration() {
        // As Kubernetes 1.36 writes it.
        let metrics = "# TYPE apiserver_encryption_config_controller_last_config_info gauge\n\
            apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:bb\"} 1\n";
        assert!(tells(metrics, "bb"));
        assert!(!tells(metrics, "aa") && !tells(metrics, "b"));
        assert!(!tells("", "bb"));
    }
}
