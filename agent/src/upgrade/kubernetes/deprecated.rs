//! APIs that a release removes and that clients still request. The API server counts the requests since its start
//! (`apiserver_requested_deprecated_apis`, stable since Kubernetes 1.22).

use contract::minor::Minor;

const METRIC: &str = "apiserver_requested_deprecated_apis{";

/// Reads an API server's metrics in Prometheus' text format. Returns the requested APIs that are gone in `to`, such as
/// `flowschemas.flowcontrol.apiserver.k8s.io/v1beta3`.
pub(super) fn removed_in(metrics: &str, to: Minor) -> Vec<String> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(METRIC)?.split_once('}'));
    let asked = lines.filter(|(_, count)| count.trim().parse::<f64>().is_ok_and(|count| count > 0.0));
    let mut removed: Vec<String> = asked.filter_map(|(labels, _)| removed(labels, to)).collect();
    removed.sort();
    removed.dedup();
    removed
}

fn removed(labels: &str, to: Minor) -> Option<String> {
    let label = |name: &str| {
        labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
    };
    let release: Minor = label("removed_release")?.parse().ok()?;
    let (group, version, resource) = (label("group")?, label("version")?, label("resource")?);
    let dot = if group.is_empty() { "" } else { "." };
    (release <= to).then(|| format!("{resource}{dot}{group}/{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_removed_apis_with_requests_count() {
        let metrics = r#"# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="example.io",removed_release="1.36",resource="widgets",subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="example.io",removed_release="1.36",resource="widgets",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="example.io",removed_release="1.37",resource="things",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="1.35",resource="olds",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="a",removed_release="1.36",resource="never",subresource="",version="v1"} 0
apiserver_requested_total{removed_release="1.36"} 7
"#;
        let to = |text: &str| removed_in(metrics, text.parse().unwrap());
        assert_eq!(to("1.36"), ["olds/v1", "widgets.example.io/v1beta1"]);
        assert_eq!(to("1.34"), Vec::<String>::new());
    }
}
