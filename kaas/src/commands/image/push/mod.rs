//! `kaas image push`: imports an OVA from this machine to the vCenter of a Provider.
//!
//! 1. Verifies the whole OVA here, with its publisher's signature.
//! 2. Imports it as the templates that all clusters of the Provider share, under a separate lease.
//! 3. Writes the NodeImage with the digest.

mod image;
mod place;
mod upload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use controller::objects::{NodeImageReason, Provider};
use fleet::upgrade::Target;
use serde_json::{Value, json};

use self::image::NodeImage;
use crate::control::{
    self, ControlClusterArgs, Look, NODE_IMAGES, PROVIDERS, Rejected, WaitArgs, WaitResult, Waiter, candidates, lines,
    name, text,
};
use crate::keys::publisher_fingerprint;
use crate::work::TakeOverArgs;

/// The name of the tenant nodes' appliance, as in its image.
const TENANT: &str = "kaas-tenant";

#[derive(Args)]
pub struct Push {
    /// OVA of tenant nodes, or a directory with one
    ova: PathBuf,
    /// Provider with the vCenter to import to
    #[arg(long, value_parser = name, add = candidates::providers())]
    provider: String,
    /// Publisher's certificate or public key in PEM: the OVA must be signed with it
    #[arg(long, value_name = "FILE", required_unless_present = "development")]
    publisher: Option<PathBuf>,
    /// Accept an image without a signature
    #[arg(long, conflicts_with = "publisher")]
    development: bool,
    /// Name of the NodeImage. Default: the appliance with its version
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Only verify the OVA, and let the API server check the NodeImage. With `--output yaml`, print it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    over: TakeOverArgs,
    #[command(flatten)]
    at: ControlClusterArgs,
    #[command(flatten)]
    until: WaitArgs,
}

/// Verifies the OVA, imports it, and waits until the NodeImage is ready. After an error, an incomplete template may be left,
/// which the next run removes. Templates without a NodeImage may be left too. The next run uses them.
pub fn push(arguments: &Push) -> anyhow::Result<ExitCode> {
    let Push { ova, provider, publisher, over, at, until, .. } = arguments;
    let ova = fleet::find_ova_of(ova, TENANT)?;
    let tell = |words: &str| until.output.tell(words);
    tell(&format!("verifying {}", ova.display()));
    let target = Target::read(&ova)?;
    let key = publisher.as_deref().map(publisher_fingerprint).transpose()?;
    is_of(&target, key.as_deref())?;
    let image = NodeImage::of(&target, arguments.name.as_deref())?;

    let control = at.open()?;
    if let Some(there) = control.get(NODE_IMAGES, &image.name)? {
        image.may_take_the_place_of(&there)?;
    }
    // A dry run, before hundreds of megabytes are uploaded.
    control.apply(NODE_IMAGES, &image.object, true)?;
    if arguments.dry_run {
        let text = || format!("{} is a valid image, and the API server accepts it as {}", target.image, image.name);
        return until.output.objects(&[&image.object], text);
    }
    let seen = control.get(PROVIDERS, provider)?;
    let seen = seen.with_context(|| format!("there is no Provider {provider}"))?;
    let seen: Provider =
        serde_json::from_value(seen).with_context(|| format!("understanding the Provider {provider}"))?;
    upload::upload(&control, &seen, &target, over.take(), &tell)?;

    control.apply(NODE_IMAGES, &image.object, false)?;
    control.apply_status(NODE_IMAGES, &image.status)?;
    let taken = format!("{} is on {provider} as the NodeImage {}", target.image, image.name);
    Waiter::new(until).run(&taken, || {
        let gone = || Rejected::because(format!("the NodeImage {} no longer exists", image.name));
        let object = control.get(NODE_IMAGES, &image.name)?.ok_or_else(gone)?;
        Ok(Look { lines: lines(&object), progress: wait_result(&object), object: json!({"image": object}) })
    })
}

/// Checks that the OVA is one of tenant nodes and signed by this publisher. Without a publisher, it must be unsigned.
fn is_of(target: &Target, publisher: Option<&str>) -> anyhow::Result<()> {
    let ova = target.ova.display();
    ensure!(target.name == TENANT, "{ova} is a {}: nodes of tenants are made of a {TENANT}", target.name);
    match (&target.signer, publisher) {
        (Some(signer), Some(publisher)) => {
            ensure!(signer == publisher, "{ova} is signed with {signer}, and the publisher's key is {publisher}");
        }
        (None, Some(publisher)) => anyhow::bail!("{ova} is not signed, and the publisher's key is {publisher}"),
        (Some(signer), None) => {
            anyhow::bail!("{ova} is signed with {signer}: give its publisher's key with --publisher")
        }
        (None, None) => {}
    }
    Ok(())
}

/// Whether VMs can be made from it.
fn wait_result(image: &Value) -> WaitResult {
    let there = format!("clusters can be made of {}", text(image, "/metadata/name"));
    control::wait_result::<NodeImageReason>(image, &["Ready", "Compatible"], there)
}

#[cfg(test)]
mod tests {
    use controller::objects::Reason;

    use super::image::tests::target;
    use super::*;

    #[test]
    fn only_tenant_images_of_the_publisher_are_pushed() {
        let taken = |signer, publisher| is_of(&target(signer), publisher).map_err(|error| error.to_string());
        assert_eq!((taken(Some("sha256:a"), Some("sha256:a")), taken(None, None)), (Ok(()), Ok(())));
        for (signer, publisher, words) in [
            (Some("sha256:a"), Some("sha256:b"), "is signed with sha256:a"),
            (None, Some("sha256:b"), "is not signed"),
            (Some("sha256:a"), None, "give its publisher's key"),
        ] {
            let refused = taken(signer, publisher).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let control_plane = Target { name: "kaas-control-plane".to_owned(), ..target(None) };
        assert!(is_of(&control_plane, None).unwrap_err().to_string().contains("is a kaas-control-plane"));
    }

    #[test]
    fn push_waits_until_image_is_ready_and_compatible() {
        let image = |reasons: &[NodeImageReason], judged: i64| {
            let condition = |reason: &NodeImageReason| {
                json!({"type": reason.condition(), "status": format!("{:?}", reason.standing()), "reason": reason.word(),
                       "message": "as it is", "observedGeneration": judged})
            };
            let conditions: Vec<Value> = reasons.iter().map(condition).collect();
            wait_result(&json!({"metadata": {"name": "x", "generation": 2}, "status": {"conditions": conditions}}))
        };
        let both = [NodeImageReason::TemplatesReady, NodeImageReason::Understood];
        assert_eq!(image(&both, 2), WaitResult::Ready("clusters can be made of x".to_owned()));
        for waits in [&both[..1], &both[1..], &[NodeImageReason::NoTemplate, NodeImageReason::Understood], &[]] {
            assert_eq!(image(waits, 2), WaitResult::Pending, "{waits:?}");
        }
        assert_eq!(image(&both, 1), WaitResult::Pending);
        assert!(matches!(image(&[NodeImageReason::NotStamped], 2), WaitResult::Stopped(_)));
    }
}
