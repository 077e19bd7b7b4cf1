//! Fields of a cell other than plain data: slots, parameters, and collections of them.

use std::{collections::BTreeMap, marker::PhantomData};

use super::{AsCell, Child, Copies, Part, PartMut, copies::not_copied};
use crate::{Param, error::Result};

/// A field that is part of the tree: a [`Child`], a [`Param`], or a collection of them.
///
/// Collections are `Option`, `Box`, `Vec`, arrays, tuples of up to six, and `BTreeMap<String, _>`, whose order is
/// fixed. Each adds a segment to the path: `blocks.3`, `heads.left`. A type of your own that holds slots must be a cell
/// or implement this trait; the compiler cannot see slots inside any other type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot sit in a cell tree: plans, optimizers and weight files would not see it",
    label = "neither a slot nor a parameter",
    note = "hold a cell in a slot, `Child<..>`; a map of slots as `BTreeMap<String, Child<..>>`; plain data in a field of its own",
    note = "plain data whose type is a type parameter is marked `#[cell(data)]`"
)]
pub trait Member {
    /// Passes itself to the visitor under a name.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>));
    /// Visits mutably, as [`visit`](Member::visit) does.
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>));
    /// Copies itself with its own parameters, for [`Child::deep_copy`]. Written by hand for a type that is `Clone`, it is
    /// `Ok(copies.of_clone(self))`; the default is an error.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a type that cannot be copied.
    fn copied(&self, copies: &mut Copies) -> Result<Self>
    where
        Self: Sized,
    {
        let _ = copies;
        Err(not_copied::<Self>())
    }
}

impl<C: ?Sized + AsCell> Member for Child<C> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        visitor(name, Part::Cell(self.slot()));
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        visitor(name, PartMut::Cell(self.slot_mut()));
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        self.copied_with(copies)
    }
}

impl Member for Param {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        visitor(name, Part::Param(self));
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        visitor(name, PartMut::Param(self));
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(copies.param(self))
    }
}

impl<M: Member> Member for Option<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        if let Some(member) = self {
            member.visit(name, visitor);
        }
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        if let Some(member) = self {
            member.visit_mut(name, visitor);
        }
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        self.as_ref().map(|member| member.copied(copies)).transpose()
    }
}

impl<M: Member> Member for Box<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        (**self).visit(name, visitor);
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        (**self).visit_mut(name, visitor);
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(Box::new((**self).copied(copies)?))
    }
}

impl<M: Member> Member for Box<[M]> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        (**self).visit(name, visitor);
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        (**self).visit_mut(name, visitor);
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        self.iter().map(|member| member.copied(copies)).collect()
    }
}

impl<M: Member> Member for [M] {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        for (i, member) in self.iter().enumerate() {
            member.visit(&format!("{name}.{i}"), visitor);
        }
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        for (i, member) in self.iter_mut().enumerate() {
            member.visit_mut(&format!("{name}.{i}"), visitor);
        }
    }
}

impl<M: Member> Member for Vec<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self[..].visit(name, visitor);
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self[..].visit_mut(name, visitor);
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        self.iter().map(|member| member.copied(copies)).collect()
    }
}

impl<M: Member, const N: usize> Member for [M; N] {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self[..].visit(name, visitor);
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self[..].visit_mut(name, visitor);
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        let all: Vec<M> = self.iter().map(|member| member.copied(copies)).collect::<Result<_>>()?;
        all.try_into().map_err(|_| not_copied::<Self>())
    }
}

impl<M: Member> Member for BTreeMap<String, M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        for (key, member) in self {
            member.visit(&format!("{name}.{key}"), visitor);
        }
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        for (key, member) in self {
            member.visit_mut(&format!("{name}.{key}"), visitor);
        }
    }
    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        self.iter().map(|(key, member)| Ok((key.clone(), member.copied(copies)?))).collect()
    }
}

impl<T: ?Sized> Member for PhantomData<T> {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, Part<'_>)) {}
    fn visit_mut(&mut self, _: &str, _: &mut dyn FnMut(&str, PartMut<'_>)) {}
    fn copied(&self, _: &mut Copies) -> Result<Self>
    where
        Self: Sized,
    {
        Ok(PhantomData)
    }
}

macro_rules! member_tuple {
    ($($m:ident $i:tt),*) => {
        impl<$($m: Member),*> Member for ($($m,)*) {
            fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
                $(self.$i.visit(&format!("{name}.{}", $i), visitor);)*
            }
            fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
                $(self.$i.visit_mut(&format!("{name}.{}", $i), visitor);)*
            }
            fn copied(&self, copies: &mut Copies) -> Result<Self> {
                Ok(($(self.$i.copied(copies)?,)*))
            }
        }
    };
}
member_tuple!(A 0);
member_tuple!(A 0, B 1);
member_tuple!(A 0, B 1, C 2);
member_tuple!(A 0, B 1, C 2, D 3);
member_tuple!(A 0, B 1, C 2, D 3, E 4);
member_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
