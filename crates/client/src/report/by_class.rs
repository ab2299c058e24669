//! Figures of links to memory nodes, by what transfers are for.

use std::iter::Sum;
use std::ops::AddAssign;

use farmem_policy::links::Class;
use serde::{Deserialize, Serialize};

/// One figure for each [`Class`] of transfers. Whoever shows them calls them by the names of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ByClass<T> {
    /// What threads waited for.
    pub demand: T,
    /// What was fetched ahead.
    pub ahead: T,
    /// Whole slabs, on their way out or back, or rebuilt after a loss.
    pub bulk: T,
}

impl<T: Copy> ByClass<T> {
    /// From one for each class.
    pub fn from_each(figure: impl Fn(Class) -> T) -> Self {
        Self { demand: figure(Class::Demand), ahead: figure(Class::Ahead), bulk: figure(Class::Bulk) }
    }

    /// That of a class.
    pub fn of(&self, class: Class) -> T {
        match class {
            Class::Demand => self.demand,
            Class::Ahead => self.ahead,
            Class::Bulk => self.bulk,
        }
    }

    /// Each with the name of its class, most urgent first.
    pub fn named(&self) -> [(&'static str, T); Class::COUNT] {
        [("demand", self.demand), ("ahead", self.ahead), ("bulk", self.bulk)]
    }

    /// All classes together.
    pub fn sum(&self) -> T
    where
        T: Sum,
    {
        self.named().into_iter().map(|(_, figure)| figure).sum()
    }
}

impl AddAssign for ByClass<u64> {
    fn add_assign(&mut self, other: Self) {
        *self = Self::from_each(|class| self.of(class) + other.of(class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_same_names_everywhere() {
        let figures = ByClass::from_each(|class| class.nth() as u64 + 1);
        let json = serde_json::to_value(figures).unwrap();
        for (name, figure) in figures.named() {
            assert_eq!(json[name], figure, "{json}");
        }
        assert_eq!((json.as_object().map(serde_json::Map::len), figures.sum()), (Some(Class::COUNT), 6));
    }
}
