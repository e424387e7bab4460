//! Makes a node's certificates look as they would after years of being off.

use crate::scenario::{MOMENT, Scenario};

/// Signs each certificate of a node again, with the dates in $FROM and $TO, by the CA that had signed it. Certificates are in
/// separate files and inside kubeconfigs.
const SIGN: &str = r#"
set -eu
cd /etc/kubernetes
sign() { # certificate authority
    openssl x509 -in "$1" -CA "$2.crt" -CAkey "$2.key" -not_before "$FROM" -not_after "$TO" \
        -copy_extensions copyall -out "$1.old"
    mv "$1.old" "$1"
}
for name in server peer healthcheck-client; do sign pki/etcd/$name.crt pki/etcd/ca; done
sign pki/apiserver-etcd-client.crt pki/etcd/ca
sign pki/front-proxy-client.crt pki/front-proxy-ca
for name in apiserver apiserver-kubelet-client kaas-endpoint; do sign pki/$name.crt pki/ca; done
sign /var/lib/kubelet/pki/kubelet.crt pki/ca
rotating=$(readlink -f /var/lib/kubelet/pki/kubelet-client-current.pem)
openssl pkey -in "$rotating" -out /run/one.key
sign "$rotating" pki/ca
cat /run/one.key >>"$rotating"
for file in *.conf; do
    sed -n 's/.*client-certificate-data"\{0,1\}: *"\{0,1\}\([A-Za-z0-9+/=]*\).*/\1/p' $file | base64 -d >/run/one.crt
    sign /run/one.crt pki/ca
    new=$(base64 -w0 /run/one.crt)
    sed "s|\(client-certificate-data\"\{0,1\}: *\"\{0,1\}\)[A-Za-z0-9+/=]*|\1$new|" $file >$file.old
    mv $file.old $file
done
sync
"#;

/// Lets all certificates of a node expire, except those of CAs.
pub fn expire(scenario: &Scenario, vm: &str) {
    sign(scenario, vm, "20200101000000Z", "20210101000000Z");
}

/// Lets all certificates of a node end within a month: in 29 whole days.
pub fn end_in_a_month(scenario: &Scenario, vm: &str) {
    let to = scenario.inside(vm, &["date", "--utc", "--date=+30 days -1 minute", "+%Y%m%d%H%M%SZ"]);
    sign(scenario, vm, "20200101000000Z", to.trim());
}

fn sign(scenario: &Scenario, vm: &str, from: &str, to: &str) {
    scenario.inside(vm, &["env", &format!("FROM={from}"), &format!("TO={to}"), "sh", "-c", SIGN]);
}

/// Prints, in base64, the certificate that a file of a worker has.
const SHOW: &str = r#"
set -eu
case "$1" in
*.pem) openssl x509 -in "$1" | base64 -w0 ;;
*) sed -n 's/.*client-certificate-data"\{0,1\}: *"\{0,1\}\([A-Za-z0-9+/=]*\).*/\1/p' "$1" ;;
esac
"#;

/// Signs such a certificate again with other dates, by the cluster's CA.
const SIGN_AGAIN: &str = r#"
set -eu
echo "$1" | base64 -d >/run/one.crt
openssl x509 -in /run/one.crt -CA /etc/kubernetes/pki/ca.crt -CAkey /etc/kubernetes/pki/ca.key \
    -not_before 20200101000000Z -not_after 20210101000000Z -copy_extensions copyall | base64 -w0
"#;

/// Puts a certificate in the place of the one that a file of a worker has.
const LAY: &str = r#"
set -eu
case "$1" in
*.pem)
    openssl pkey -in "$1" -out /run/one.key
    echo "$2" | base64 -d | cat - /run/one.key >"$1.old"
    ;;
*) sed "s|\(client-certificate-data\"\{0,1\}: *\"\{0,1\}\)[A-Za-z0-9+/=]*|\1$2|" "$1" >"$1.old" ;;
esac
cat "$1.old" >"$1"
rm "$1.old"
sync
"#;

/// The certificate that a worker's kubelet has renewed last.
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// All that it has renewed. The worker goes on with the one that ends last.
const RENEWED: &str = "/var/lib/kubelet/pki/kubelet-client-2*.pem";

/// Whether the kubelet has renewed the certificate that the worker has joined with: it does so when it starts, and would do
/// so again meanwhile.
const HAS_RENEWED: &str = r#"
set -eu
joined=$(sed -n 's/.*client-certificate-data"\{0,1\}: *"\{0,1\}\([A-Za-z0-9+/=]*\).*/\1/p' /etc/kubernetes/kubelet.conf |
    base64 -d | openssl x509 -noout -serial)
test "$(openssl x509 -in "$1" -noout -serial)" != "$joined"
"#;

/// Lets the certificate of a running worker expire, in each of its files: the control-plane node `by` signs each again.
pub fn expire_worker(scenario: &Scenario, worker: &str, by: &str) {
    scenario.wait(&format!("the kubelet of {worker} to have a certificate of its own making"), MOMENT, || {
        scenario.lab().run_inside(worker, &["sh", "-c", HAS_RENEWED, "sh", CURRENT], MOMENT).map(|_| true)
    });
    let files = scenario.inside(worker, &["sh", "-c", &format!("ls /etc/kubernetes/*.conf {RENEWED}")]);
    for file in files.lines() {
        let script = |vm: &str, script: &str, arguments: &[&str]| {
            scenario.inside(vm, &[&["sh", "-c", script, "sh"], arguments].concat()).trim().to_owned()
        };
        let shown = script(worker, SHOW, &[file]);
        assert!(!shown.is_empty(), "{file} of {worker} has no certificate");
        script(worker, LAY, &[file, &script(by, SIGN_AGAIN, &[&shown])]);
    }
    scenario.reached(&format!("the certificate of {worker} has expired"));
}
