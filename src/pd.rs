//! Protection domains: what belongs together.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_providers::types::PdHandle;
use uverbs_providers::verbs;

use crate::context::Context;
use crate::error::AllocPdError;
use crate::teardown;

/// A protection domain: memory regions and queue pairs of one domain can be used together, those of
/// two cannot.
///
/// A cheap handle; the last one to go, with everything made from it, frees the kernel's object.
#[derive(Clone)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

// Field order is destroy order: the kernel object first (in `Drop`), then memory that the device
// could still have been writing, then the device.
pub(crate) struct PdInner {
    pub(crate) handle: PdHandle,
    /// Memory of regions whose driver does not promise that a deregistration fences: kept until
    /// nothing of this domain is left that could write it.
    graveyard: Mutex<Vec<Box<dyn Send>>>,
    pub(crate) context: Context,
}

impl ProtectionDomain {
    pub(crate) fn alloc(context: &Context) -> Result<Self, AllocPdError> {
        let handle = verbs::pd::alloc(context.session()).map_err(|source| {
            let device = teardown::is_no_room(&source).then(|| context.query_device());
            let max_pd = device.and_then(Result::ok).map(|device| device.max_pd);
            AllocPdError { source, max_pd }
        })?;
        let inner = PdInner {
            handle,
            graveyard: Mutex::new(Vec::new()),
            context: context.clone(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl PdInner {
    /// Keeps memory until the last object of this domain is gone.
    pub(crate) fn bury(&self, memory: Box<dyn Send>) {
        self.graveyard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(memory);
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // Everything that rests on it holds a handle to it, so the kernel has no cause to refuse;
        // if it does, the object goes with the open file, and what may still be written is leaked.
        if verbs::pd::dealloc(self.context.session(), self.handle).is_err() {
            let graveyard = self
                .graveyard
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(graveyard));
        }
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("handle", &self.inner.handle.0)
            .finish()
    }
}
