//! What can be measured, by name.

use clap::ValueEnum;

use crate::workload::Pattern;

/// A program, or a pattern of access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum SubjectName {
    /// Reads one page after the other.
    Sequential,
    /// Reads every fifth page.
    Strided,
    /// Reads popular pages often.
    Zipf,
    /// Reads pages at random: nothing can be predicted. It is repeated more often, since what this costs is
    /// to be told from chance.
    RandomRead,
    /// Reads in each page the number of the next one.
    Chase,
    /// Follows a list of objects.
    List,
    /// Visits a binary tree in depth.
    Tree,
    /// Goes down the same tree again and again.
    Search,
    /// A linked list, in C.
    CList,
    /// A B-tree read in the order of its keys, in C.
    #[value(name = "c-btree-scan")]
    CBTreeScan,
    /// The same tree asked for keys at random.
    #[value(name = "c-btree-search")]
    CBTreeSearch,
    /// Two tables joined by a hash table, in C.
    CHashJoin,
    /// PageRank as products of a sparse matrix and a vector, in C.
    CPagerank,
    /// Four threads that each read a part of one array in order, in C.
    CArrayParts,
    /// Four threads that read columns of a matrix that is stored by rows, in C.
    CArrayColumns,
    /// Four threads that follow the references in parts of one array, in C.
    CArrayReferences,
    /// An array sorted by numpy.
    NumpySort,
    /// Matrices multiplied by numpy.
    NumpyMultiply,
    /// Trees trained by XGBoost.
    Xgboost,
    /// A regression over objects with arrays, in Java.
    JavaRegression,
    /// The middles of clusters of points in arrays, in Java.
    JavaKmeans,
    /// A visit in breadth of a graph of objects, in Java.
    JavaBreadth,
    /// A regression in Spark. Not installed by `scripts/setup`: named among what was left out, and
    /// `java-regression` stands for it.
    SparkRegression,
    /// The middles of clusters in Spark; as for the regression, `java-kmeans` stands for it.
    SparkKmeans,
    /// Redis, asked for popular values often.
    RedisZipf,
    /// Redis, asked for all of its keys and their values.
    RedisScan,
}

/// What kind of program a subject is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Pattern(Pattern),
    C,
    Python,
    Java,
    Spark,
    Redis,
}

impl SubjectName {
    /// The name where nothing can be predicted.
    pub(super) const UNPREDICTABLE: Self = Self::RandomRead;
    /// Those where only references say what comes, one after the other.
    pub(super) const REFERENCES: [Self; 4] = [Self::List, Self::CList, Self::CBTreeScan, Self::CHashJoin];
    /// Those in Java that go over their data many times.
    pub(super) const ITERATIVE: [Self; 2] = [Self::JavaRegression, Self::JavaKmeans];
    /// A graph of objects in Java.
    pub(super) const GRAPH: Self = Self::JavaBreadth;

    pub(super) fn family(self) -> Family {
        match self {
            Self::Sequential => Family::Pattern(Pattern::Sequential),
            Self::Strided => Family::Pattern(Pattern::Strided),
            Self::Zipf => Family::Pattern(Pattern::Zipf),
            Self::RandomRead => Family::Pattern(Pattern::RandomRead),
            Self::Chase => Family::Pattern(Pattern::Chase),
            Self::List => Family::Pattern(Pattern::List),
            Self::Tree => Family::Pattern(Pattern::Tree),
            Self::Search => Family::Pattern(Pattern::Search),
            Self::CList | Self::CBTreeScan | Self::CBTreeSearch | Self::CHashJoin | Self::CPagerank => {
                Family::C
            }
            Self::CArrayParts | Self::CArrayColumns | Self::CArrayReferences => Family::C,
            Self::NumpySort | Self::NumpyMultiply | Self::Xgboost => Family::Python,
            Self::JavaRegression | Self::JavaKmeans | Self::JavaBreadth => Family::Java,
            Self::SparkRegression | Self::SparkKmeans => Family::Spark,
            Self::RedisZipf | Self::RedisScan => Family::Redis,
        }
    }
}
