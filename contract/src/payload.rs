//! The files of a payload directory: written by the image builder, read by the agent.
//!
//! It is an OCI image layout (image-spec 1.1: `image-layout.md`, `image-index.md`, `manifest.md`) with one addition. A layer
//! may be missing from `blobs/sha256/` if `layers/<hex digest>.json` describes how to assemble it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The annotation with an image's full name in containerd.
pub const IMAGE_NAME: &str = "io.containerd.image.name";

/// The annotation with an image's tag (image-spec, `annotations.md`).
pub const REFERENCE_NAME: &str = "org.opencontainers.image.ref.name";

/// `index.json`: one entry for each image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// `application/vnd.oci.image.index.v1+json`.
    pub media_type: Option<String>,
    /// The images' manifests, each annotated with [`IMAGE_NAME`] and [`REFERENCE_NAME`].
    pub manifests: Vec<Descriptor>,
}

/// A reference to content by its digest (image-spec, `descriptor.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the content.
    pub media_type: String,
    /// `sha256:` and 64 hex digits.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// The platform, as the specification's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<serde_json::Value>,
    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An image's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// `application/vnd.oci.image.manifest.v1+json`.
    pub media_type: Option<String>,
    /// The image's configuration.
    pub config: Descriptor,
    /// The layers, from the lowest up.
    pub layers: Vec<Descriptor>,
}

/// `layers/<hex digest>.json`: a tar layer that is assembled from pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssembledLayer {
    /// Bytes of the whole layer, uncompressed.
    pub size: u64,
    /// The pieces in order; the layer is their concatenation.
    pub segments: Vec<Segment>,
}

/// One piece of an [`AssembledLayer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Segment {
    /// Literal bytes: tar headers and padding.
    Inline {
        /// Standard base64 with padding.
        inline: String,
    },
    /// The whole content of a file of the root.
    File {
        /// Absolute path in the image's root.
        file: PathBuf,
        /// Its size in bytes. Another size means a damaged image.
        size: u64,
    },
}
