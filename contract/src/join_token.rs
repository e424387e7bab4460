//! What who makes the tokens that workers join with, and who lets workers in, agree on. They are bootstrap tokens, as
//! `kubeadm token create` makes them too (Kubernetes, "Authenticating with Bootstrap Tokens").

/// The group of who shows such a token.
pub const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The annotation of a token's Secret with the name of the node that it is for. A token without it is good for any node that the
/// cluster does not have yet.
pub const NODE: &str = "kaas.local/node";

/// Where the Secrets of tokens are.
pub const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// The name of the Secret of the token with this identifier: its public half, six characters.
pub fn secret(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// Where that Secret is.
pub fn path(id: &str) -> String {
    format!("{SECRETS}/{}", secret(id))
}
