//! Methods of the port that only hand their call on. Written once, so that each provider shows
//! what it does by itself.

/// Writes the methods named last, each as a call of the same method on `to`:
/// `delegate!(mode self name => to; stop peek)`. Modes:
///
/// - `port`: `to` is a provider too;
/// - `limited`: the same, but it may take no longer than it says ([`Limits`]);
/// - `inner`: `to` has methods of the same names that borrow names, fences and texts.
///
/// [`Limits`]: gascity_actors::ports::Limits
macro_rules! delegate {
    ($mode:ident $self:ident $name:ident => $to:expr; $($op:ident)*) => {
        $($crate::sessions::delegate::delegate!(@$op $mode $self $name [$to]);)*
    };
    (@stop $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn stop(
            &$self,
            $name: gascity_actors::model::SessionName,
            fence: gascity_actors::ports::Fence,
        ) -> gascity_actors::ports::PortFuture<'_, gascity_actors::ports::Stopped, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] stop ($name, fence) (&$name, &fence))
        }
    };
    (@interrupt $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn interrupt(
            &$self,
            $name: gascity_actors::model::SessionName,
            fence: gascity_actors::ports::Fence,
        ) -> gascity_actors::ports::PortFuture<'_, bool, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] interrupt ($name, fence) (&$name, &fence))
        }
    };
    (@liveness $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn liveness(
            &$self,
            $name: gascity_actors::model::SessionName,
            token: gascity_actors::model::RunToken,
        ) -> gascity_actors::ports::PortFuture<'_, gascity_actors::ports::Liveness, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] liveness ($name, token) (&$name, &token))
        }
    };
    (@process_alive $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn process_alive(
            &$self,
            $name: gascity_actors::model::SessionName,
            names: Vec<String>,
        ) -> gascity_actors::ports::PortFuture<'_, bool, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] process_alive ($name, names) (&$name, names))
        }
    };
    (@clear_scrollback $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn clear_scrollback(
            &$self,
            $name: gascity_actors::model::SessionName,
        ) -> gascity_actors::ports::PortFuture<'_, (), gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] clear_scrollback ($name) (&$name))
        }
    };
    (@peek $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn peek(
            &$self,
            $name: gascity_actors::model::SessionName,
            lines: u32,
        ) -> gascity_actors::ports::PortFuture<'_, String, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] peek ($name, lines) (&$name, lines))
        }
    };
    (@set_note $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn set_note(
            &$self,
            $name: gascity_actors::model::SessionName,
            fence: gascity_actors::ports::Fence,
            note: gascity_actors::ports::Note,
            value: Option<String>,
        ) -> gascity_actors::ports::PortFuture<'_, (), gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] set_note ($name, fence, note, value) (&$name, &fence, note, value))
        }
    };
    (@nudge $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn nudge(
            &$self,
            $name: gascity_actors::model::SessionName,
            fence: gascity_actors::ports::Fence,
            text: String,
        ) -> gascity_actors::ports::PortFuture<'_, gascity_actors::ports::Delivery, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] nudge ($name, fence, text) (&$name, &fence, &text))
        }
    };
    (@send_keys $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn send_keys(
            &$self,
            $name: gascity_actors::model::SessionName,
            fence: gascity_actors::ports::Fence,
            keys: Vec<gascity_actors::ports::Key>,
        ) -> gascity_actors::ports::PortFuture<'_, bool, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] send_keys ($name, fence, keys) (&$name, &fence, &keys))
        }
    };
    (@attach $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn attach(
            &$self,
            $name: gascity_actors::model::SessionName,
            read_only: bool,
        ) -> gascity_actors::ports::PortFuture<'_, gascity_actors::ports::AttachPlan, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] attach ($name, read_only) (&$name, read_only))
        }
    };
    (@copy_to $mode:ident $self:ident $name:ident [$to:expr]) => {
        fn copy_to(
            &$self,
            $name: gascity_actors::model::SessionName,
            from: std::path::PathBuf,
            to: String,
        ) -> gascity_actors::ports::PortFuture<'_, usize, gascity_actors::ports::SessionError> {
            $crate::sessions::delegate::delegate!(#$mode [$to] copy_to ($name, from, to) (&$name, from, &to))
        }
    };
    (#port [$to:expr] $op:ident ($($owned:expr),*) ($($lent:expr),*)) => {
        Box::pin(async move { $to.$op($($owned),*).await })
    };
    (#inner [$to:expr] $op:ident ($($owned:expr),*) ($($lent:expr),*)) => {
        Box::pin(async move { $to.$op($($lent),*).await })
    };
    (#limited [$to:expr] $op:ident ($($owned:expr),*) ($($lent:expr),*)) => {
        Box::pin(async move {
            let to = $to;
            let limit = to.limits().$op;
            let done = tokio::time::timeout(limit, to.$op($($owned),*)).await;
            done.unwrap_or(Err(gascity_actors::ports::SessionError::Timeout))
        })
    };
}
pub(crate) use delegate;
