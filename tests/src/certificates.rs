//! Makes a node's certificates look as they would after years of being off.

use crate::scenario::Scenario;

/// Signs each certificate of a node again, as it is but with the dates in $FROM and $TO, with
/// the authority that had signed it: in files of their own and inside kubeconfigs.
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

/// Lets all certificates of a node expire, the authorities' excepted.
pub fn expire(scenario: &Scenario, vm: &str) {
    sign(scenario, vm, "20200101000000Z", "20210101000000Z");
}

/// Lets all certificates of a node end in a month.
pub fn end_in_a_month(scenario: &Scenario, vm: &str) {
    let to = scenario.inside(vm, &["date", "--utc", "--date=30 days", "+%Y%m%d%H%M%SZ"]);
    sign(scenario, vm, "20200101000000Z", to.trim());
}

fn sign(scenario: &Scenario, vm: &str, from: &str, to: &str) {
    scenario.inside(vm, &["env", &format!("FROM={from}"), &format!("TO={to}"), "sh", "-c", SIGN]);
}
