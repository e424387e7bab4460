//! What is to be done, decided by what was seen. Pure: nothing is asked or done here, and an answer that is not known is no
//! answer.

mod addresses;
mod ip_pool;
mod node_image;
mod pool;
pub mod provider;
mod sizes;
mod template;

pub use self::addresses::{Allocation, Malformed, Named, POOL, allocation, claimed, named, total};
pub use self::ip_pool::{Counted, counted};
pub use self::node_image::{Found, Judged, judged, next_phase, phase};
pub use self::pool::{Unfit, WantedPool, wishes};
pub use self::provider::{SeenVCenter, SeenZone};
pub use self::sizes::{ControlPlaneSize, automatic, grown};
pub use self::template::Made;
