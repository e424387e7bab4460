//! The contract between programs that make join tokens for workers and programs that admit workers. They are bootstrap tokens,
//! as those of `kubeadm token create` (Kubernetes, "Authenticating with Bootstrap Tokens").

/// The group of clients with such a token.
pub const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The annotation of a token's Secret with the name of the node that it is for. A token without it is valid for any node that
/// the cluster does not have yet.
pub const NODE: &str = "kaas.local/node";

/// The API path of the tokens' Secrets.
pub const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// The name of the Secret of the token with this identifier. The identifier is the token's public half, six characters.
pub fn secret(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// The API path of that Secret.
pub fn path(id: &str) -> String {
    format!("{SECRETS}/{}", secret(id))
}
