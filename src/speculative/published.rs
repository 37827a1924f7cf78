//! stub
use super::{AcceptanceRate, Method};
/// stub
pub fn typical_rate(_method: Method) -> AcceptanceRate { AcceptanceRate::ALWAYS }
