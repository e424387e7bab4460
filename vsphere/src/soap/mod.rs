//! SOAP 1.1 as the vSphere Web Services API speaks it: elements, their text form, envelopes. Knows nothing of connections.

mod element;
mod envelope;
mod read;
mod write;

pub use element::{Element, Kind, Malformed};
pub(crate) use envelope::{Answered, answered, policy_request, request};
pub use read::Unreadable;
pub use write::ForbiddenCharacter;
