//! SOAP 1.1 for the vSphere Web Services API: elements, their text form, envelopes. The module knows nothing of
//! connections.

mod element;
mod envelope;
mod read;
mod write;

pub use element::{Element, Kind, Malformed};
pub(crate) use envelope::{Answered, answered, policy_request, request};
pub use read::Unreadable;
pub use write::ForbiddenCharacter;
